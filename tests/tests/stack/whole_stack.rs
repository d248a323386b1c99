//! The whole stack in one process on a paused clock: days of timeouts in milliseconds.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use ostler_api::MachineClass;
use ostler_api::machine::{FailureReason, Machine, MachinePhase, WaitReason};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{
    class, delete, get, gone, in_phase, instances, machine, nodes, waits_for,
};
use ostler_tests::sim::users::Users;
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
    assert_eq!(instances(&world), 1, "a Failed machine is kept for its MachineSet");
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
    // The kubelet is gone without a word, and the controller that watches nodes says so.
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

/// A client with machine-controller-manager's types writes every machine back, over and over, for as long as it lives.
#[tokio::test(start_paused = true)]
async fn a_client_with_the_types_of_upstream_costs_no_instance() {
    let world = World::start().await;
    let names: Vec<String> = (0..20).map(|number| format!("m-{number}")).collect();
    let (users, written) = (Users::new(world.client()), names.clone());
    let writes = tokio::spawn(async move {
        loop {
            for name in &written {
                users.put_as_upstream(name).await;
                tokio::time::sleep(Duration::from_millis(170)).await;
            }
        }
    });
    for name in &names {
        world.apply::<Machine>(machine(name, "fake")).await;
    }
    for name in &names {
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    let made = world.calls().iter().filter(|call| call.operation == Verb::CreateMachine).count();
    assert_eq!((made, instances(&world)), (20, 20));
    for name in &names {
        delete(&world, name).await;
    }
    for name in &names {
        world.until(name, "gone", gone).await;
    }
    assert_eq!((instances(&world), nodes(&world).await), (0, 0));
    writes.abort();
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn once_definitions_are_seen_to_lack_our_fields_nothing_is_sent_until_they_have_them() {
    let world = World::start().await;
    world.apply::<Machine>(machine("there", "fake")).await;
    world.until("there", "Running", in_phase(MachinePhase::Running)).await;
    let json_patch = |operation: Value| {
        let operations = serde_json::from_value(json!([operation])).unwrap();
        Patch::<CustomResourceDefinition>::Json(operations)
    };
    let kinds = Api::<CustomResourceDefinition>::all(world.client());
    let name = "machines.machine.sapcloud.io";
    let ours = kinds.get(name).await.unwrap();
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/operation";
    let without = json_patch(json!({ "op": "remove", "path": field }));
    kinds.patch(name, &PatchParams::default(), &without).await.unwrap();

    // The annotation has the first create and its initialization: neither needs the field.
    world.apply::<Machine>(machine("new", "fake")).await;
    world.until("new", "Running", in_phase(MachinePhase::Running)).await;
    delete(&world, "there").await;
    world.until("there", "waiting", waits_for(WaitReason::CrdsOutdated)).await;
    assert_eq!(instances(&world), 2, "nothing is deleted");
    world.apply::<Machine>(machine("third", "fake")).await;
    world.until("third", "waiting", waits_for(WaitReason::CrdsOutdated)).await;
    assert_eq!(instances(&world), 2, "nothing more is made");
    assert!(world.metrics().contains("ostler_crd_fields_dropped 1"));

    let again = json_patch(json!({ "op": "replace", "path": "/spec", "value": ours.spec }));
    kinds.patch(name, &PatchParams::default(), &again).await.unwrap();
    world.until("there", "gone", gone).await;
    world.until("third", "Running", in_phase(MachinePhase::Running)).await;
    assert_eq!(instances(&world), 2);
    world.stop().await;
}
