//! The whole stack in one process on a paused clock: days of timeouts in milliseconds.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;
use ostler_api::MachineClass;
use ostler_api::machine::{FailureReason, Machine, MachinePhase, WaitReason};
use ostler_tests::objects::{
    class, delete, get, gone, in_phase, instances, machine, nodes, waits_for,
};
use ostler_tests::world::World;
use serde_json::{Value, json};

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 30,
            "containers": [{ "name": "app", "image": "pause" }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_hundred_machines_live_and_go_and_leave_nothing() {
    let world = World::start().await;
    for index in 0..100 {
        world.apply::<Machine>(machine(&format!("m-{index}"), "fake")).await;
    }
    for index in 0..100 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    assert_eq!(instances(&world), 100);
    assert_eq!(nodes(&world).await, 100);
    for index in 0..100 {
        delete(&world, &format!("m-{index}")).await;
    }
    for index in 0..100 {
        world.until(&format!("m-{index}"), "gone", gone).await;
    }
    assert_eq!(instances(&world), 0);
    assert_eq!(nodes(&world).await, 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_joins_fails_its_machine_after_the_creation_timeout() {
    let world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "kubelet": { "join": "never" } });
    world.apply::<MachineClass>(class("deaf", &spec)).await;
    let began = world.now();
    world.apply::<Machine>(machine("m", "deaf")).await;
    world.until("m", "Failed", in_phase(MachinePhase::Failed)).await;
    let took = world.now().duration_since(began);
    assert!(took.as_secs() >= 20 * 60 && took.as_secs() < 25 * 60, "{took}");
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.failure_reason, Some(FailureReason::JoinTimeout));
    assert_eq!(instances(&world), 1, "a Failed machine is kept for whoever replaces it");
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_never_yields_holds_a_drain_for_two_hours_and_not_longer() {
    let world = World::start().await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    world.apply::<Pod>(pod("held", "m")).await;
    world
        .apply::<PodDisruptionBudget>(json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "held", "namespace": "default" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "held" } } },
        }))
        .await;
    let began = world.now();
    delete(&world, "m").await;
    world.until("m", "blocked", waits_for(WaitReason::MisconfiguredBudget)).await;
    world.until("m", "gone", gone).await;
    let took = world.now().duration_since(began);
    assert!(took.as_secs() >= 2 * 3600 && took.as_secs() < 2 * 3600 + 120, "{took}");
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_fails_after_its_node_was_unhealthy_for_the_health_timeout() {
    let mut world = World::start().await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let api = Api::<Node>::all(world.client());
    // The kubelet is gone without a word, and whoever watches nodes says so.
    world.crash_kubelets();
    let patch = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" },
    ] } });
    api.patch_status("m", &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(patch))
        .await
        .unwrap();
    world.until("m", "Unknown", in_phase(MachinePhase::Unknown)).await;
    let began = world.now();
    world.until("m", "Failed", in_phase(MachinePhase::Failed)).await;
    let took = world.now().duration_since(began);
    assert!(took.as_secs() >= 590 && took.as_secs() < 700, "{took}");
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.failure_reason, Some(FailureReason::HealthTimeout));
}

#[tokio::test(start_paused = true)]
async fn machines_go_on_where_they_were_when_the_core_is_replaced() {
    let mut world = World::start().await;
    for index in 0..10 {
        world.apply::<Machine>(machine(&format!("m-{index}"), "fake")).await;
    }
    world.stop_core().await;
    world.start_core().await;
    for index in 0..10 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    assert_eq!(instances(&world), 10);
    world.stop().await;
}
