//! Deletions: without a wait where nothing has to be waited for, held by hooks, begun by hand.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams};
use ostler_api::machine::{FailureReason, MachinePhase, WaitReason};
use ostler_api::names::hook;
use ostler_tests::objects::{delete, get, gone, in_phase, instances, waits_for};
use ostler_tests::world::World;
use serde_json::json;

use crate::drain::ground::{events, node_status, pod, running, runs};

#[tokio::test(start_paused = true)]
async fn a_deletion_without_pods_goes_from_step_to_step_without_waiting() {
    let world = World::start().await;
    running(&world, "m").await;
    let began = world.now();
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    let took = world.now().duration_since(began);
    assert_eq!(took.as_millis(), 0, "no timer runs between cordon and finalizer: {took}");
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hooks_hold_the_drain_and_the_instance_until_they_are_taken_away() {
    let world = World::start().await;
    running(&world, "m").await;
    let (drain, end) =
        (format!("{}/backup", hook::PRE_DRAIN), format!("{}/dns", hook::PRE_TERMINATE));
    let annotations = json!({ &drain: "backup-operator", &end: "" });
    world.patch_machine("m", json!({ "metadata": { "annotations": annotations } })).await;
    delete(&world, "m").await;
    world.until("m", "held before its drain", waits_for(WaitReason::PreDrainHook)).await;
    let waiting = get(&world, "m").await.status.unwrap().waiting_for.unwrap();
    let held = format!("held by annotation {drain} of backup-operator");
    assert_eq!(waiting.message, Some(held));
    tokio::time::sleep(std::time::Duration::from_mins(150)).await;
    world.patch_machine("m", json!({ "metadata": { "annotations": { &drain: null } } })).await;
    world.until("m", "held before its end", waits_for(WaitReason::PreTerminateHook)).await;
    assert_eq!(instances(&world), 1);
    let began = world.now();
    world.patch_machine("m", json!({ "metadata": { "annotations": { &end: null } } })).await;
    world.until("m", "gone", gone).await;
    assert_eq!(world.now().duration_since(began).as_millis(), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hooks_hold_as_before_when_the_core_dies_and_nothing_is_drained_twice() {
    let mut world = World::start().await;
    running(&world, "m").await;
    runs(&world, pod("db", "m")).await;
    let keys = [hook::PRE_DRAIN, hook::PRE_TERMINATE].map(|hook| format!("{hook}/one"));
    let annotations = json!({ &keys[0]: "", &keys[1]: "" });
    world.patch_machine("m", json!({ "metadata": { "annotations": annotations } })).await;
    delete(&world, "m").await;
    let reasons = [WaitReason::PreDrainHook, WaitReason::PreTerminateHook];
    for (drains, (key, reason)) in keys.iter().zip(reasons).enumerate() {
        world.until("m", "held", waits_for(reason)).await;
        let said = async |world: &World| {
            tokio::time::sleep(std::time::Duration::from_mins(5)).await;
            let status = get(world, "m").await.status.unwrap();
            (status.step, status.waiting_for, status.drain)
        };
        let before = said(&world).await;
        world.crash_core();
        world.start_core().await;
        assert_eq!(said(&world).await, before, "{key}");
        let pods = Api::<Pod>::default_namespaced(world.client());
        assert_eq!(pods.get_opt("db").await.unwrap().is_none(), drains == 1, "{key}");
        let told = events(&world, "Node", "m").await;
        let begun = told.iter().filter(|it| *it == "DrainStarted").count();
        assert_eq!((begun, instances(&world)), (drains, 1), "{key}");
        world.patch_machine("m", json!({ "metadata": { "annotations": { key: null } } })).await;
    }
    world.until("m", "gone", gone).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_by_hand_takes_its_machine_with_it() {
    let world = World::start().await;
    running(&world, "m").await;
    Api::<Node>::all(world.client()).delete("m", &DeleteParams::default()).await.unwrap();
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    assert!(Api::<Node>::all(world.client()).get_opt("m").await.unwrap().is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_deleted_by_hand_fails_its_machine_when_its_node_falls_silent() {
    let world = World::start().await;
    running(&world, "m").await;
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    let id = get(&world, "m").await.spec.provider_id.unwrap();
    world.cloud().remove(&[id.into()]).unwrap();
    let silent = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" });
    let began = world.now();
    node_status(&world, "m", json!({ "conditions": [silent] })).await;
    world.until("m", "Failed", in_phase(MachinePhase::Failed)).await;
    let took = world.now().duration_since(began).as_secs();
    assert!((60..65).contains(&took), "after a second look, not after the health timeout: {took}");
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.failure_reason, Some(FailureReason::InstanceMissing));
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    world.stop().await;
}
