//! Drains of Machines of a pool: their obstacles, and their effects. On a paused clock.

use std::time::Duration;

use ostler_api::MachinePool;
use ostler_api::machine::{Machine, WaitReason};
use ostler_api::names::hook;
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{delete, gone, instances, waits_for};
use ostler_tests::world::World;
use serde_json::json;

use crate::drain::ground;
use crate::pool_drivers::pods;
use crate::pool_safety::pod_for_each;
use crate::pools::{asked, ids, machines, patch, pool, rest, scale, start, until_runs};

/// A pool of two with a pod on each Node.
async fn with_pods() -> World {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    Box::pin(pod_for_each(&world)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_drain_timeout_of_the_template_reaches_a_machine_whose_drain_a_budget_holds() {
    let world = Box::pin(with_pods()).await;
    ground::budget(&world, "b", "all", "yes").await;
    scale(&world, 1).await;
    rest().await;
    let victim = machines(&world).await.into_iter().find(Machine::is_deleting).unwrap();
    world.until(victim.name(), "held", waits_for(WaitReason::MisconfiguredBudget)).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((instances(&world), pods(&world).await), (2, 2));
    patch(&world, json!({ "spec": { "template": { "spec": { "drainTimeout": "1m" } } } })).await;
    let since = world.now();
    until_runs(&world, 1).await;
    let took = world.now().duration_since(since).as_secs();
    assert!(took < 120, "not the two hours that it began with: {took} s");
    assert_eq!((instances(&world), pods(&world).await), (1, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_holds_the_named_deletion_of_an_instance_also_when_the_core_dies() {
    let mut world = Box::pin(with_pods()).await;
    let victim = machines(&world).await.remove(0);
    let key = format!("{}/dns", hook::PRE_TERMINATE);
    let annotate = |value| json!({ "metadata": { "annotations": { &key: value } } });
    world.patch_machine(victim.name(), annotate(Some("dns"))).await;
    delete(&world, victim.name()).await;
    world.until(victim.name(), "held", waits_for(WaitReason::PreTerminateHook)).await;
    for core_dies in [false, true] {
        if core_dies {
            world.crash_core();
            world.start_core().await;
        }
        rest().await;
        assert_eq!(asked(&world, Verb::DeletePoolMachines), 0, "the core dies: {core_dies}");
        assert_eq!((instances(&world), pods(&world).await), (2, 1));
    }
    world.patch_machine(victim.name(), annotate(None)).await;
    world.until(victim.name(), "gone", gone).await;
    until_runs(&world, 2).await;
    assert_eq!((instances(&world), asked(&world, Verb::DeletePoolMachines)), (2, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_node_of_an_instance_that_the_cloud_takes_back_with_notice_is_drained_before_that_goes()
{
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    for machine in machines(&world).await {
        // An instance of the fake cloud stops with the notice: no kubelet ends a pod that has a grace period.
        let mut pod = ground::pod(machine.name(), machine.node_name().unwrap());
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        ground::runs(&world, pod).await;
    }
    let group = world.cloud().groups(|_| true).unwrap().remove(0).group.provider_id;
    let before = ids(&world);
    world.cloud().rescale(&group, 1, Duration::from_mins(2)).unwrap();
    while pods(&world).await == 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(before.iter().all(|id| ids(&world).contains(id)), "its pods leave first");
    }
    until_runs(&world, 2).await;
    rest().await;
    let kept = before.iter().filter(|id| ids(&world).contains(id)).count();
    assert_eq!((kept, instances(&world), pods(&world).await), (1, 2, 1));
    world.stop().await;
}
