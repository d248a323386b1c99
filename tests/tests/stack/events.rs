//! What a driver tells by itself makes the core look, immediately and bounded, and is no evidence of what happened.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use ostler_api::machine::{
    FailureReason, Machine, MachinePhase, MachineStep, NoticeReason, WaitReason,
};
use ostler_api::{MachineClass, MachinePool, MachineSet};
use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::CLUSTER_TAG;
use ostler_driver_fake::fault::Verb;
use ostler_driver_sdk::{Event, Identity};
use ostler_tests::objects::{at_step, class, get, gone, in_phase, machine, waits_for};
use ostler_tests::world::World;
use serde_json::json;

use crate::drain::ground;
use crate::{pools, sets};

/// A world with a running machine and a driver that reports events.
async fn telling() -> (World, FakeDriver) {
    let mut world = World::start().await;
    let driver = tells(&mut world).await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    (world, driver)
}

/// Replaces the running driver by a driver that reports events.
async fn tells(world: &mut World) -> FakeDriver {
    world.stop_driver().await;
    let driver = FakeDriver::new(world.cloud().clone());
    world.run_driver(driver.clone());
    tokio::spawn(driver.clone().watch());
    driver
}

async fn provider_id(world: &World, name: &str) -> String {
    get(world, name).await.spec.provider_id.unwrap().into()
}

fn reads(driver: &FakeDriver) -> usize {
    driver.calls().recent().iter().filter(|call| call.operation == Verb::GetMachineStatus).count()
}

/// The value of a metric whose line has all of these words.
fn metric(world: &World, words: &[&str]) -> u64 {
    let text = world.metrics();
    let line = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_removed_by_hand_is_missed_within_two_seconds() {
    let (world, _) = telling().await;
    let id = provider_id(&world, "m").await;
    let began = world.now();
    world.cloud().remove(&[id]).unwrap();
    world.until("m", "Failed", in_phase(MachinePhase::Failed)).await;
    let took = world.now().duration_since(began);
    assert!(took.as_secs() < 2, "{took}");
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.failure_reason, Some(FailureReason::InstanceMissing));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instances_that_are_taken_away_before_their_node_joins_are_made_again_after_growing_pauses()
{
    let (world, _) = telling().await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "boot": "30m" } });
    world.apply::<MachineClass>(class("sleepy", &spec)).await;
    world.apply::<Machine>(machine("lost", "sleepy")).await;
    for (count, pause) in [(1, 0), (2, 60), (3, 120)] {
        world.until("lost", "made", at_step(MachineStep::JoinNode)).await;
        let id = provider_id(&world, "lost").await;
        let began = world.now();
        world.cloud().remove(std::slice::from_ref(&id)).unwrap();
        let another = |machine: Option<&Machine>| {
            machine.and_then(Machine::provider_id).is_some_and(|it| *it != *id)
        };
        world.until("lost", "made again", another).await;
        let took = world.now().duration_since(began).as_secs();
        assert!((pause..pause + 5).contains(&took), "{count}: {took}");
        let losses = get(&world, "lost").await.status.unwrap().losses.unwrap();
        assert_eq!(losses.count, count);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_notice_of_a_spot_loss_is_shown_with_its_time_and_the_machine_runs_until_it_comes() {
    let (world, driver) = telling().await;
    let id = provider_id(&world, "m").await;
    let notice = Event::termination_notice(&id).within(Duration::from_mins(2));
    driver.told().send(notice.message("the price is above the bid"));
    let shown = |machine: Option<&Machine>| {
        machine.is_some_and(|it| it.status.as_ref().is_some_and(|it| it.instance_notice.is_some()))
    };
    world.until("m", "announced", shown).await;
    let status = get(&world, "m").await.status.unwrap();
    let notice = status.instance_notice.clone().unwrap();
    assert_eq!(notice.reason, NoticeReason::TerminationNotice);
    let left = notice.effective_at.unwrap().0.duration_since(world.now());
    assert!((110..=120).contains(&left.as_secs()), "{left}");
    assert_eq!(status.machine_phase(), MachinePhase::Running);
    driver.told().send(Event::notice_over(&id));
    world
        .until("m", "over", move |machine: Option<&Machine>| machine.is_some() && !shown(machine))
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_replaces_a_machine_as_soon_as_its_end_is_announced_and_drains_it_in_the_time_that_is_left()
 {
    let mut world = World::start_with(sets::with_sets()).await;
    let driver = tells(&mut world).await;
    world.apply::<MachineSet>(sets::set("s", 2)).await;
    sets::until_runs(&world, "s", 2).await;
    let [spot, other] = sets::machines(&world).await.try_into().unwrap();
    ground::runs(&world, ground::pod("db", spot.node_name().unwrap())).await;
    ground::budget(&world, "b", "app", "db").await;
    let began = world.now();
    let notice = Event::termination_notice(spot.provider_id().unwrap().as_str());
    driver.told().send(notice.within(Duration::from_mins(2)));
    sets::until_runs(&world, "s", 2).await;
    let held = waits_for(WaitReason::MisconfiguredBudget);
    world.until(spot.name(), "held while its successor runs", held).await;
    world.until(spot.name(), "gone", gone).await;
    let took = world.now().duration_since(began).as_secs();
    assert!((115..130).contains(&took), "{took} s, not the two hours of a drain");
    let left = sets::machines(&world).await;
    assert!(left.iter().any(|it| it.name() == other.name()) && left.len() == 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_replaces_the_instance_whose_end_is_announced_by_a_named_deletion() {
    let mut world = Box::pin(pools::start()).await;
    let driver = tells(&mut world).await;
    world.apply::<MachinePool>(pools::pool("p", 2)).await;
    pools::until_runs(&world, 2).await;
    let [spot, other] = pools::machines(&world).await.try_into().unwrap();
    let notice = Event::termination_notice(spot.provider_id().unwrap().as_str());
    driver.told().send(notice.within(Duration::from_mins(2)));
    let began = world.now();
    world.until(spot.name(), "gone", gone).await;
    assert!(world.now().duration_since(began).as_secs() < 120, "before its instance ends");
    pools::until_runs(&world, 2).await;
    let kept = pools::ids(&world);
    let calls = driver.calls().recent();
    let named = calls.iter().filter(|it| it.operation == Verb::DeletePoolMachines).count();
    assert!(
        kept.iter().any(|id| other.provider_id().unwrap() == id.as_str()),
        "the other one stays"
    );
    assert_eq!((kept.len(), named), (2, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_floods_events_and_lies_costs_a_few_reads_and_harms_no_machine() {
    let (world, driver) = telling().await;
    let id = provider_id(&world, "m").await;
    let uid = get(&world, "m").await.metadata.uid.unwrap();
    let stranger = Identity {
        cluster_id: "another cluster".to_owned(),
        machine_name: "m".to_owned(),
        machine_uid: uid,
    };
    let before = reads(&driver);
    for number in 0..20_000 {
        driver.told().send(Event::gone(&id));
        driver.told().send(Event::gone(format!("fake:///{number}")));
        driver.told().send(Event::gone(&id).of(&stranger));
        if number % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    world.apply::<Machine>(machine("other", "fake")).await;
    world.until("other", "Running", in_phase(MachinePhase::Running)).await;
    let looked = reads(&driver) - before;
    assert!((1..=12).contains(&looked), "{looked} reads");
    assert_eq!(get(&world, "m").await.phase(), MachinePhase::Running, "it is there");
    let dropped = "ostler_driver_events_dropped_total";
    assert!(metric(&world, &[dropped, "UNKNOWN_MACHINE"]) > 0);
    assert!(metric(&world, &[dropped, "MACHINE_RATE"]) > 0);
    assert!(
        world.cloud().instances().unwrap().iter().all(|it| it.vm.tags.contains_key(CLUSTER_TAG))
    );
    world.stop().await;
}
