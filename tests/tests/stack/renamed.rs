//! A VM that came back under another host name: its Machine has two Nodes of one provider id.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use ostler_api::machine::{MachinePhase, WaitReason};
use ostler_tests::objects::{delete, get, gone, waits_for};
use ostler_tests::world::World;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::drain::ground::{budget, events, pod, remove, running};

const OTHER: &str = "host-2";

/// The kubelet of the other Node says that it is ready. Without a Lease it is never silent.
async fn is_ready(world: &World) {
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
    let api = Api::<Node>::all(world.client());
    api.patch_status(OTHER, &PatchParams::default(), &patch).await.unwrap();
}

async fn node(world: &World, name: &str) -> Option<Node> {
    Api::<Node>::all(world.client()).get_opt(name).await.unwrap()
}

async fn status_of_pod(world: &World, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    let pods = Api::<Pod>::default_namespaced(world.client());
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_came_back_under_another_name_is_healthy_and_goes_with_both_its_nodes_drained() {
    let mut world = World::start().await;
    running(&world, "m").await;
    let id = get(&world, "m").await.provider_id().unwrap().clone();
    let other = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": OTHER },
        "spec": { "providerID": id },
    });
    let other: Node = serde_json::from_value(other).unwrap();
    let nodes = Api::<Node>::all(world.client());
    nodes.create(&PostParams::default(), &other).await.unwrap();
    is_ready(&world).await;
    world.until("m", "told", waits_for(WaitReason::NodeAmbiguous)).await;
    world.crash_kubelets();
    // Longer than the health timeout.
    sleep(Duration::from_mins(15)).await;
    let machine = get(&world, "m").await;
    let status = machine.status.clone().unwrap();
    assert_eq!(machine.phase(), MachinePhase::Running);
    let wait = status.waiting_for.unwrap();
    assert_eq!(wait.reason, WaitReason::NodeAmbiguous);
    assert!(wait.message.unwrap().ends_with("m, host-2"));
    assert!(events(&world, "Machine", "m").await.iter().any(|it| it == "NodeAmbiguous"));

    world.apply::<Pod>(pod("db", OTHER)).await;
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    status_of_pod(&world, "db", json!({ "phase": "Running", "conditions": ready })).await;
    budget(&world, "one", "app", "db").await;
    delete(&world, "m").await;
    world.until("m", "held", waits_for(WaitReason::MisconfiguredBudget)).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.cloud().instances().unwrap().len(), 1, "INV-4");
    for name in ["m", OTHER] {
        let spec = node(&world, name).await.unwrap().spec.unwrap();
        assert_eq!(spec.unschedulable, Some(true), "{name}");
    }
    remove::<PodDisruptionBudget>(&world, "one").await;
    sleep(Duration::from_secs(30)).await;
    // The kubelet ends it.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    Api::<Pod>::default_namespaced(world.client()).delete("db", &now).await.unwrap();
    world.until("m", "gone", gone).await;
    assert!(node(&world, "m").await.is_none() && node(&world, OTHER).await.is_none());
    world.stop().await;
}
