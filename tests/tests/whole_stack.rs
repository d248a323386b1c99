//! The whole stack in one process on a paused clock: days of timeouts in milliseconds.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams};
use ostler_api::MachineClass;
use ostler_api::machine::{FailureReason, Machine, MachinePhase, MachineStep, WaitReason};
use ostler_tests::world::World;
use serde_json::{Value, json};

fn class(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": { "name": name, "namespace": "default" },
        "provider": "fake.ostler.dev",
        "providerSpec": spec,
        "secretRef": { "name": "fake", "namespace": "default" },
    })
}

fn machine(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "class": { "kind": "MachineClass", "name": class } },
    })
}

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

fn in_phase(phase: MachinePhase) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| machine.is_some_and(|machine| machine.phase() == phase)
}

fn at_step(step: MachineStep) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.step.as_ref()) == Some(&step)
    }
}

fn waits_for(reason: WaitReason) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.waiting_for.as_ref()).is_some_and(|it| it.reason == reason)
    }
}

fn gone(machine: Option<&Machine>) -> bool {
    machine.is_none()
}

async fn delete(world: &World, name: &str) {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

async fn get(world: &World, name: &str) -> Machine {
    Api::<Machine>::default_namespaced(world.client()).get(name).await.unwrap()
}

fn instances(world: &World) -> usize {
    world.cloud().instances().unwrap().len()
}

async fn nodes(world: &World) -> usize {
    Api::<Node>::all(world.client()).list(&ListParams::default()).await.unwrap().items.len()
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
    world.until("m", "blocked", waits_for(WaitReason::PodDisruptionBudget)).await;
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
async fn a_core_that_crashes_while_an_instance_is_made_finds_it_again() {
    let mut world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "10m" } });
    world.apply::<MachineClass>(class("slow", &spec)).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "being made", at_step(MachineStep::CreateInstance)).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    world.crash_core();
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.start_core().await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    assert_eq!(instances(&world), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_crashes_while_an_instance_is_made_leaves_one() {
    let mut world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "10m" } });
    world.apply::<MachineClass>(class("slow", &spec)).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    world.crash_driver();
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.start_driver();
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    assert_eq!(instances(&world), 1);
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_deleted_while_its_instance_is_made_leaves_nothing() {
    let world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "10m" } });
    world.apply::<MachineClass>(class("slow", &spec)).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
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
