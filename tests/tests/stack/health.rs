//! Health, node template and preservation, the whole stack in one process on a paused clock.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use ostler_api::MachineClass;
use ostler_api::machine::{FailureReason, Machine, MachinePhase, WaitReason};
use ostler_api::names::{annotation, taint};
use ostler_server::TargetCluster;
use ostler_tests::gate::Gate;
use ostler_tests::objects::{class, get, in_phase, machine, waits_for};
use ostler_tests::world::{Cluster, Setup, World};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Sets the condition Ready of a Node, as the node controller does.
async fn say_ready(client: Client, node: &str, ready: &str) {
    let patch = json!({ "status": { "conditions": [
        { "type": "Ready", "status": ready, "reason": "NodeStatus" },
    ] } });
    let api = Api::<Node>::all(client);
    api.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

/// A world whose cores reach the machines' cluster through a gate.
async fn behind_a_gate() -> (World, Cluster, Gate) {
    let (target, gate) = (Cluster::start().await, Gate::default());
    let through = gate.client(target.service());
    let setup = Setup {
        joins: Some(target.client()),
        ..Setup::tuned(move |options| options.target = TargetCluster::Other(through.clone()))
    };
    (World::start_with(setup).await, target, gate)
}

fn is_member(mut machine: Value) -> Value {
    machine["metadata"]["labels"] = json!({ "name": "pool" });
    machine
}

async fn phases(world: &World) -> Vec<(String, MachinePhase)> {
    let api = Api::<Machine>::default_namespaced(world.client());
    let machines = api.list(&ListParams::default()).await.unwrap();
    machines.items.iter().map(|one| (one.name().to_owned(), one.phase())).collect()
}

async fn how_many(world: &World, phase: MachinePhase) -> usize {
    phases(world).await.iter().filter(|(_, is)| *is == phase).count()
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_flaps_costs_no_machine_and_freezes_nothing_for_ever() {
    let (mut world, target, gate) = behind_a_gate().await;
    for name in ["alive", "dead"] {
        world.apply::<Machine>(machine(name, "fake")).await;
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    world.patch_machine("dead", json!({ "spec": { "healthTimeout": "3m" } })).await;
    world.crash_kubelets();
    let mut failed_after = None;
    for minute in 0..45 {
        // 20 s up: the kubelet that lives reports in time, the one that is dead does not.
        gate.open(true);
        sleep(Duration::from_secs(5)).await;
        say_ready(target.client(), "alive", "True").await;
        sleep(Duration::from_secs(15)).await;
        let alive = get(&world, "alive").await.phase();
        assert_eq!(alive, MachinePhase::Running, "minute {minute}");
        if get(&world, "dead").await.phase() == MachinePhase::Failed && failed_after.is_none() {
            failed_after = Some(minute);
        }
        // 40 s down, in which no kubelet is heard.
        gate.open(false);
        for node in ["alive", "dead"] {
            say_ready(target.client(), node, "Unknown").await;
        }
        sleep(Duration::from_secs(40)).await;
    }
    let failed_after = failed_after.expect("a dead machine fails, however slowly");
    assert!(failed_after > 15, "and not as if there had been no outages: {failed_after} min");
    world.stop().await;
    target.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_target_cluster_is_unreachable_its_machines_wait_and_then_have_their_full_time() {
    let (mut world, target, gate) = behind_a_gate().await;
    for index in 0..20 {
        world.apply::<Machine>(machine(&format!("m-{index}"), "fake")).await;
    }
    for index in 0..20 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    world.crash_kubelets();
    for index in 0..20 {
        say_ready(target.client(), &format!("m-{index}"), "Unknown").await;
    }
    for index in 0..20 {
        let unknown = in_phase(MachinePhase::Unknown);
        world.until(&format!("m-{index}"), "Unknown", unknown).await;
    }
    gate.open(false);
    let frozen = waits_for(WaitReason::ApiServerUnreachable);
    world.until("m-0", "frozen", frozen).await;
    sleep(Duration::from_secs(30)).await;
    let events = Api::<k8s_openapi::api::events::v1::Event>::default_namespaced(world.client());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let told = events.iter().filter(|one| one.reason.as_deref() == Some("MachineHealthFrozen"));
    assert_eq!(told.count(), 1);
    sleep(Duration::from_mins(30)).await;
    assert_eq!(how_many(&world, MachinePhase::Unknown).await, 20);
    let back = world.now();
    gate.open(true);
    say_ready(target.client(), "m-0", "True").await;
    world.until("m-0", "Running", in_phase(MachinePhase::Running)).await;
    world.until("m-1", "Failed", in_phase(MachinePhase::Failed)).await;
    let took = world.now().duration_since(back).as_secs();
    assert!((540..900).contains(&took), "{took}");
    world.stop().await;
    target.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_pool_whose_nodes_are_all_lost_one_machine_fails_at_a_time() {
    let mut world = World::start().await;
    for index in 0..30 {
        world.apply::<Machine>(is_member(machine(&format!("m-{index}"), "fake"))).await;
    }
    for index in 0..30 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    world.crash_kubelets();
    for index in 0..30 {
        say_ready(world.client(), &format!("m-{index}"), "Unknown").await;
    }
    sleep(Duration::from_mins(11)).await;
    assert_eq!(how_many(&world, MachinePhase::Failed).await, 1);
    let waits = waits_for(WaitReason::MassFailure);
    let all = Api::<Machine>::default_namespaced(world.client());
    let members = all.list(&ListParams::default()).await.unwrap().items;
    let waiting: Vec<_> = members.iter().filter(|one| waits(Some(one))).collect();
    assert_eq!(waiting.len(), 29);
    let failed = members.iter().find(|one| one.phase() == MachinePhase::Failed).unwrap();
    let message = waiting[0].status.as_ref().unwrap().waiting_for.clone().unwrap().message;
    assert!(message.unwrap().contains(failed.name()), "it says for whom");
    // No controller replaces the failed one. The others wait: something else is broken than they.
    sleep(Duration::from_hours(5)).await;
    assert_eq!(how_many(&world, MachinePhase::Failed).await, 1);
    // When all of them are well again, only the one was lost; and even that runs on.
    for index in 0..30 {
        say_ready(world.client(), &format!("m-{index}"), "True").await;
    }
    for index in 0..30 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_a_replacement_runs_the_next_machine_in_line_fails_at_once() {
    let mut world = World::start().await;
    for name in ["a", "b"] {
        world.apply::<Machine>(is_member(machine(name, "fake"))).await;
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    for name in ["a", "b"] {
        world.patch_machine(name, json!({ "spec": { "healthTimeout": "1m" } })).await;
    }
    world.crash_kubelets();
    say_ready(world.client(), "a", "Unknown").await;
    world.until("a", "Failed", in_phase(MachinePhase::Failed)).await;
    say_ready(world.client(), "b", "Unknown").await;
    world.until("b", "waiting", waits_for(WaitReason::ReplacementBudget)).await;
    let before = world.now();
    // It is well again instead of being replaced: that frees the budget as well.
    say_ready(world.client(), "a", "True").await;
    world.until("b", "Failed", in_phase(MachinePhase::Failed)).await;
    let took = world.now().duration_since(before).as_secs();
    assert!(took < 5, "{took}");
    let status = get(&world, "b").await.status.unwrap();
    assert_eq!(status.failure_reason, Some(FailureReason::HealthTimeout));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_carries_what_its_template_and_its_class_say_and_follows_them() {
    let world = World::start().await;
    let mut capacious = class("fat", &json!({ "region": "local", "image": "fake-1.0" }));
    capacious["nodeTemplate"] = json!({
        "capacity": { "cpu": "1", "gpu": "0", "memory": "1Gi" },
        "virtualCapacity": { "example.com/licence": 2 },
        "instanceType": "small", "region": "local", "zone": "local"
    });
    world.apply::<MachineClass>(capacious).await;
    let mut templated = machine("m", "fat");
    templated["spec"]["nodeTemplate"] = json!({
        "metadata": { "labels": { "pool": "a" }, "annotations": { "team": "x" } },
        "spec": { "taints": [{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }] }
    });
    world.apply::<Machine>(templated).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    sleep(Duration::from_secs(1)).await;
    let nodes = Api::<Node>::all(world.client());
    let node = nodes.get("m").await.unwrap();
    assert_eq!(node.metadata.labels.as_ref().unwrap()["pool"], "a");
    let taints = node.spec.as_ref().unwrap().taints.clone().unwrap();
    assert!(taints.iter().any(|one| one.key == "dedicated"));
    let capacity = node.status.as_ref().unwrap().capacity.clone().unwrap();
    assert_eq!(capacity["example.com/licence"].0, "2");
    assert!(capacity.contains_key("cpu"), "the kubelet's own stays");
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    let more = json!({ "nodeTemplate": { "virtualCapacity": { "example.com/licence": 5 } } });
    classes.patch("fat", &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    let without = json!({ "spec": { "nodeTemplate": { "spec": { "taints": null } } } });
    world.patch_machine("m", without).await;
    sleep(Duration::from_secs(5)).await;
    let node = nodes.get("m").await.unwrap();
    let capacity = node.status.as_ref().unwrap().capacity.clone().unwrap();
    assert_eq!(capacity["example.com/licence"].0, "5");
    let taints = node.spec.as_ref().unwrap().taints.clone().unwrap_or_default();
    assert!(!taints.iter().any(|one| one.key == "dedicated"));
    let version = node.metadata.resource_version.clone();
    sleep(Duration::from_mins(20)).await;
    let later = nodes.get("m").await.unwrap().metadata.resource_version;
    assert_eq!(later, version, "a node that is as it is to be is not written");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_machine_is_preserved_for_its_time_and_not_longer() {
    let mut world = World::start().await;
    let mut kept = machine("m", "fake");
    kept["spec"]["machinePreserveTimeout"] = json!("2h");
    kept["metadata"]["annotations"] = json!({ (annotation::PRESERVE): "when-failed" });
    world.apply::<Machine>(kept).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    world
        .apply::<Pod>(json!({
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "nodeName": "m", "containers": [{ "name": "app", "image": "pause" }] },
        }))
        .await;
    world.crash_kubelets();
    say_ready(world.client(), "m", "Unknown").await;
    let preserved = waits_for(WaitReason::Preserved);
    world.until("m", "preserved", preserved).await;
    sleep(Duration::from_secs(5)).await;
    let nodes = Api::<Node>::all(world.client());
    let node = nodes.get("m").await.unwrap();
    let has = |node: &Node| {
        let taints = node.spec.as_ref().unwrap().taints.clone().unwrap_or_default();
        taints.iter().any(|one| one.key == taint::PRESERVED)
    };
    let says = |node: &Node| {
        let conditions = node.status.clone().unwrap().conditions.unwrap();
        conditions.into_iter().find(|one| one.type_ == "Preserved").unwrap().status
    };
    assert!(has(&node));
    assert_eq!(says(&node), "True");
    sleep(Duration::from_mins(110)).await;
    let pods = Api::<Pod>::default_namespaced(world.client());
    assert!(pods.get_opt("web").await.unwrap().is_none(), "it runs elsewhere");
    assert!(waits_for(WaitReason::Preserved)(Some(&get(&world, "m").await)));
    sleep(Duration::from_mins(15)).await;
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.current_status.unwrap().preserve_expiry_time, None);
    let node = nodes.get("m").await.unwrap();
    assert!(!has(&node));
    assert_eq!(says(&node), "False");
    world.stop().await;
}
