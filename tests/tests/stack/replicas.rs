//! Several cores on a cluster, with one leader. On a paused clock.

use std::time::Duration;

use ostler_api::machine::{Machine, MachinePhase};
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::Instant;

async fn machines(world: &World, names: std::ops::Range<usize>) {
    for number in names {
        world
            .apply::<Machine>(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1",
                "kind": "Machine",
                "metadata": { "name": format!("m-{number}"), "namespace": "default" },
                "spec": { "class": { "kind": "MachineClass", "name": "slow" } },
            }))
            .await;
    }
}

async fn slow_class(world: &World) {
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "5s" } });
    world
        .apply::<ostler_api::MachineClass>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineClass",
            "metadata": { "name": "slow", "namespace": "default" },
            "provider": "fake.ostler.dev",
            "providerSpec": spec,
            "secretRef": { "name": "fake", "namespace": "default" },
        }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_two_replicas_ends_and_every_machine_gets_one_instance() {
    let mut world = World::start().await;
    slow_class(&world).await;
    let mut second = world.start_replica().await;
    // Ready without leading: else the rollout would wait for it for ever.
    second.core.synced().wait_for(|synced| *synced).await.unwrap();
    machines(&world, 0..10).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let mut third = world.start_replica().await;
    third.core.synced().wait_for(|synced| *synced).await.unwrap();
    let before = Instant::now();
    world.stop_core().await;
    let leads = tokio::select! {
        ready = second.core.ready() => { ready.unwrap(); 2 }
        ready = third.core.ready() => { ready.unwrap(); 3 }
    };
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    machines(&world, 10..20).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let last = if leads == 2 {
        second.stop().await;
        third
    } else {
        third.stop().await;
        second
    };
    for number in 0..20 {
        let running = |machine: Option<&Machine>| {
            machine.is_some_and(|machine| machine.phase() == MachinePhase::Running)
        };
        world.until(&format!("m-{number}"), "Running", running).await;
    }
    assert_eq!(world.cloud().instances().unwrap().len(), 20);
    last.stop().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_whose_lease_another_one_takes_without_waiting_says_who_took_it() {
    let impatient = Setup::tuned(|options| options.settings.lease_at_once = true);
    let world = World::start_with(impatient).await;
    let mut first = world.start_replica().await;
    first.core.ready().await.unwrap();
    let mut second = world.start_replica().await;
    second.core.ready().await.unwrap();
    let why = format!("{:#}", first.core.failure().await);
    assert!(why.contains("another core, \"core-2\", took the lease"), "{why}");
    first.stop().await;
    second.stop().await;
    world.stop().await;
}
