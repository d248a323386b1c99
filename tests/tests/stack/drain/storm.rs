//! Many drains at the same time do not hold up other machines.

use futures::{StreamExt as _, stream};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_tests::objects::{delete, in_phase, instances, machine, waits_for};
use ostler_tests::world::World;

use crate::drain::ground::{budget, pod, runs};

/// Machines whose drains a budget holds, unless `OSTLER_TEST_DRAINS` says how many.
const DRAINING: usize = 250;
/// Machines that are made meanwhile.
const CREATED: usize = 50;
/// Requests of the test that run at the same time.
const AT_ONCE: usize = 64;

async fn each<F: Future<Output = ()>>(count: usize, work: impl Fn(usize) -> F) {
    stream::iter(0..count).map(work).buffer_unordered(AT_ONCE).collect::<()>().await;
}

fn draining() -> usize {
    let wanted = std::env::var("OSTLER_TEST_DRAINS").ok();
    wanted.map_or(DRAINING, |text| text.parse().expect("OSTLER_TEST_DRAINS is a number"))
}

/// Makes machines and waits until they run; returns how long that took, in virtual milliseconds.
async fn made(world: &World, prefix: &str, count: usize) -> i128 {
    let began = world.now();
    each(count, |index| async move {
        world.apply::<Machine>(machine(&format!("{prefix}-{index}"), "fake")).await;
    })
    .await;
    each(count, |index| async move {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("{prefix}-{index}"), "Running", running).await;
    })
    .await;
    world.now().duration_since(began).as_millis()
}

#[tokio::test(start_paused = true)]
async fn many_blocked_drains_do_not_hold_up_fifty_creations() {
    let world = &World::start().await;
    let draining = draining();
    let alone = made(world, "first", CREATED).await;
    made(world, "old", draining).await;
    each(draining, |index| async move {
        runs(world, pod(&format!("p-{index}"), &format!("old-{index}"))).await;
    })
    .await;
    budget(world, "all", "all", "yes").await;
    each(draining, |index| async move { delete(world, &format!("old-{index}")).await }).await;
    each(draining, |index| async move {
        let held = waits_for(WaitReason::MisconfiguredBudget);
        world.until(&format!("old-{index}"), "held", held).await;
    })
    .await;
    let beside = made(world, "new", CREATED).await;
    println!("{CREATED} machines alone {alone} ms, beside {draining} held drains {beside} ms");
    assert!(beside <= alone + 1_000, "alone {alone} ms, beside drains {beside} ms");
    assert_eq!(instances(world), 2 * CREATED + draining, "nothing is drained yet");
}
