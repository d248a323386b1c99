//! Control and target cluster apart, several target clusters, and machines without one.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use ostler_api::MachinePool;
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_server::{TargetCluster, Unusable};
use ostler_tests::gate::Gate;
use ostler_tests::objects::{delete, get, gone, in_phase, instances, machine, nodes, waits_for};
use ostler_tests::world::{Cluster, Setup, World};
use serde_json::json;
use tokio::time::sleep;

use crate::pools::pool;

/// A world whose machines join another cluster.
async fn apart() -> (World, Cluster) {
    let target = Cluster::start().await;
    let client = target.client();
    let other = client.clone();
    let setup = Setup {
        joins: Some(client),
        ..Setup::tuned(move |options| options.target = TargetCluster::Other(other.clone()))
    };
    (World::start_with(setup).await, target)
}

async fn nodes_of(cluster: &Cluster) -> usize {
    let api = Api::<Node>::all(cluster.client());
    api.list(&ListParams::default()).await.unwrap().items.len()
}

/// The reasons of the events about Nodes.
async fn told_of_nodes(client: Client) -> Vec<String> {
    let events = Api::<Event>::all(client).list(&ListParams::default()).await.unwrap();
    let kind = |event: &Event| event.regarding.clone().and_then(|about| about.kind);
    let of_nodes = events.into_iter().filter(|event| kind(event).as_deref() == Some("Node"));
    of_nodes.filter_map(|event| event.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn machines_of_one_cluster_become_nodes_of_another_and_are_drained_there() {
    let (world, target) = apart().await;
    for index in 0..10 {
        world.apply::<Machine>(machine(&format!("m-{index}"), "fake")).await;
    }
    for index in 0..10 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    assert_eq!((nodes_of(&target).await, nodes(&world).await), (10, 0));
    let node = get(&world, "m-0").await.node_name().unwrap().to_owned();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "app", "namespace": "default" },
        "spec": { "nodeName": node, "containers": [{ "name": "app", "image": "pause" }] },
    }))
    .unwrap();
    let pods = Api::<Pod>::namespaced(target.client(), "default");
    pods.create(&PostParams::default(), &pod).await.unwrap();
    for index in 0..10 {
        delete(&world, &format!("m-{index}")).await;
    }
    for index in 0..10 {
        world.until(&format!("m-{index}"), "gone", gone).await;
    }
    assert!(pods.get_opt("app").await.unwrap().is_none(), "the pod was evicted");
    assert_eq!((instances(&world), nodes_of(&target).await), (0, 0));
    assert_eq!(told_of_nodes(world.client()).await, [""; 0], "no Node is there");
    // All events are written then.
    world.stop().await;
    let told = told_of_nodes(target.client()).await;
    assert!(told.contains(&"DrainStarted".to_owned()), "{told:?}");
    target.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_target_cluster_machines_are_available_and_go_without_a_drain() {
    let setup = Setup::tuned(|options| options.target = TargetCluster::None);
    let world = World::start_with(setup).await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Available", in_phase(MachinePhase::Available)).await;
    let available = get(&world, "m").await;
    let status = available.status.clone().unwrap();
    assert!(!status.addresses.is_empty(), "the driver said them");
    assert_eq!(available.node_name(), None, "whatever the driver says");
    let tokens = Api::<Secret>::namespaced(world.client(), "kube-system");
    assert_eq!(tokens.list(&ListParams::default()).await.unwrap().items.len(), 0);
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

/// Cores that find the client of each cluster under the text that is its kubeconfig.
fn by_secret(clients: Vec<(&'static str, Client)>, most: usize) -> Setup {
    let connect = move |text: String| -> futures::future::BoxFuture<'static, _> {
        let found = clients.iter().find(|(name, _)| *name == text);
        let client = found.map(|(_, client)| client.clone()).ok_or(Unusable::Malformed);
        Box::pin(async move { client })
    };
    let connect: ostler_server::Connect = Arc::new(connect);
    Setup::tuned(move |options| {
        options.target = TargetCluster::BySecret { connect: Arc::clone(&connect), most };
    })
}

fn of_cluster(name: &str, cluster: &str) -> serde_json::Value {
    let mut machine = machine(name, "fake");
    machine["metadata"]["labels"] = json!({ "cluster.x-k8s.io/cluster-name": cluster });
    machine
}

fn kubeconfig(cluster: &str, text: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": { "name": format!("{cluster}-kubeconfig"), "namespace": "default" },
        "stringData": { "value": text },
    })
}

#[tokio::test(start_paused = true)]
async fn each_machine_joins_the_cluster_of_its_label_by_the_secret_of_that_cluster() {
    let (red, blue) = (Cluster::start().await, Cluster::start().await);
    let clients = vec![("to red", red.client()), ("to blue", blue.client())];
    let setup = Setup { joins: Some(red.client()), ..by_secret(clients, 100) };
    let world = World::start_with(setup).await;
    world.apply::<Machine>(of_cluster("r", "red")).await;
    world.apply::<Machine>(of_cluster("b", "blue")).await;
    world.apply::<Machine>(machine("nobodys", "fake")).await;
    world.until("nobodys", "unnamed", waits_for(WaitReason::TargetUnnamed)).await;
    for name in ["r", "b"] {
        let missing = waits_for(WaitReason::TargetSecretMissing);
        world.until(name, "without its secret", missing).await;
    }
    assert_eq!(instances(&world), 0, "nothing is made for a cluster that cannot be joined");
    world.apply::<Secret>(kubeconfig("red", "to red")).await;
    world.until("r", "Running", in_phase(MachinePhase::Running)).await;
    world.apply::<Secret>(kubeconfig("blue", "nonsense")).await;
    world.until("b", "with a bad secret", waits_for(WaitReason::TargetSecretInvalid)).await;
    let change = Patch::Merge(json!({ "stringData": { "value": "to blue" } }));
    let secrets = Api::<Secret>::default_namespaced(world.client());
    secrets.patch("blue-kubeconfig", &PatchParams::default(), &change).await.unwrap();
    // The instances of this test join red: whatever is there, blue has no Node of `b`.
    world.until("b", "waiting for its node", waits_for(WaitReason::NodeNotJoined)).await;
    let tokens = |cluster: &Cluster| Api::<Secret>::namespaced(cluster.client(), "kube-system");
    assert_eq!(tokens(&blue).list(&ListParams::default()).await.unwrap().items.len(), 1);
    for name in ["r", "b", "nobodys"] {
        delete(&world, name).await;
        world.until(name, "gone", gone).await;
    }
    assert_eq!(instances(&world), 0);
    assert_eq!(tokens(&blue).list(&ListParams::default()).await.unwrap().items.len(), 0);
    world.stop().await;
    red.stop().await;
    blue.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_cluster_makes_room_for_another_when_no_machine_names_it_any_more() {
    let (red, blue) = (Cluster::start().await, Cluster::start().await);
    let clients = vec![("to red", red.client()), ("to blue", blue.client())];
    let setup = Setup { joins: Some(red.client()), ..by_secret(clients, 1) };
    let world = World::start_with(setup).await;
    world.apply::<Secret>(kubeconfig("red", "to red")).await;
    world.apply::<Secret>(kubeconfig("blue", "to blue")).await;
    world.apply::<Machine>(of_cluster("r", "red")).await;
    world.until("r", "Running", in_phase(MachinePhase::Running)).await;
    world.apply::<Machine>(of_cluster("b", "blue")).await;
    world.until("b", "one too many", waits_for(WaitReason::TooManyTargets)).await;
    delete(&world, "r").await;
    world.until("b", "waiting for its node", waits_for(WaitReason::NodeNotJoined)).await;
    delete(&world, "b").await;
    world.until("b", "gone", gone).await;
    world.stop().await;
    red.stop().await;
    blue.stop().await;
}

/// A pool of this cluster without instances, whose user data ask for a token.
fn empty_pool(name: &str, cluster: &str) -> serde_json::Value {
    let mut pool = pool(name, 0);
    pool["spec"]["clusterName"] = json!(cluster);
    pool["spec"]["template"]["spec"]["class"]["name"] = json!("fake");
    pool["spec"]["template"]["spec"]["bootstrap"] =
        json!({ "data": "--token=<<BOOTSTRAP_TOKEN>>" });
    pool
}

/// So many bootstrap tokens are in the cluster.
async fn until_tokens(cluster: &Cluster, count: usize) {
    let tokens = Api::<Secret>::namespaced(cluster.client(), "kube-system");
    let there = async {
        while tokens.list(&ListParams::default()).await.unwrap().items.len() != count {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let met = tokio::time::timeout(Duration::from_hours(1), there).await;
    assert!(met.is_ok(), "never {count} tokens");
}

/// There is room for one cluster, and no Machine names any.
#[tokio::test(start_paused = true)]
async fn a_cluster_is_opened_for_the_token_of_a_pool_without_machines_and_closed_after_it() {
    let (red, blue) = (Cluster::start().await, Cluster::start().await);
    let clients = vec![("to red", red.client()), ("to blue", blue.client())];
    let world = World::start_with(by_secret(clients, 1)).await;
    world.apply::<MachinePool>(empty_pool("r", "red")).await;
    // Its kubeconfig comes later.
    world.apply::<Secret>(kubeconfig("red", "to red")).await;
    world.apply::<Secret>(kubeconfig("blue", "to blue")).await;
    until_tokens(&red, 1).await;
    world.apply::<MachinePool>(empty_pool("b", "blue")).await;
    sleep(Duration::from_mins(5)).await;
    until_tokens(&blue, 0).await;
    let pools = Api::<MachinePool>::default_namespaced(world.client());
    for (name, cluster) in [("r", &red), ("b", &blue)] {
        until_tokens(cluster, 1).await;
        pools.delete(name, &DeleteParams::default()).await.unwrap();
        until_tokens(cluster, 0).await;
    }
    world.stop().await;
    red.stop().await;
    blue.stop().await;
}

async fn say_ready(client: Client, node: &str, ready: &str) {
    let patch = json!({ "status": { "conditions": [
        { "type": "Ready", "status": ready, "reason": "NodeStatus" },
    ] } });
    let api = Api::<Node>::all(client);
    api.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

/// The Node of a machine whose instance joins no cluster of these tests by itself.
async fn join(world: &World, name: &str, client: Client) {
    world.until(name, "waiting for its node", waits_for(WaitReason::NodeNotJoined)).await;
    let id = get(world, name).await.provider_id().unwrap().to_owned();
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": name }, "spec": { "providerID": id },
    }))
    .unwrap();
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
    say_ready(client, name, "True").await;
}

#[tokio::test(start_paused = true)]
async fn the_outage_of_one_target_cluster_is_added_to_the_timeouts_of_its_own_machines_only() {
    let (red, blue, gate) = (Cluster::start().await, Cluster::start().await, Gate::default());
    let clients = vec![("to red", gate.client(red.service())), ("to blue", blue.client())];
    let setup = Setup { joins: Some(red.client()), ..by_secret(clients, 100) };
    let mut world = World::start_with(setup).await;
    for cluster in ["red", "blue"] {
        world.apply::<Secret>(kubeconfig(cluster, &format!("to {cluster}"))).await;
    }
    for (name, cluster) in [("alive", "red"), ("dead", "red"), ("other", "blue")] {
        let mut machine = of_cluster(name, cluster);
        machine["spec"]["healthTimeout"] = json!("3m");
        world.apply::<Machine>(machine).await;
    }
    Box::pin(join(&world, "other", blue.client())).await;
    for name in ["alive", "dead", "other"] {
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    world.crash_kubelets();
    say_ready(blue.client(), "other", "Unknown").await;
    let (mut dead, mut other) = (None, None);
    for minute in 0..45 {
        // Red answers for 20 s: the kubelet that lives reports in time, the one that is dead does not.
        gate.open(true);
        sleep(Duration::from_secs(5)).await;
        say_ready(red.client(), "alive", "True").await;
        sleep(Duration::from_secs(15)).await;
        let alive = get(&world, "alive").await.phase();
        assert_eq!(alive, MachinePhase::Running, "minute {minute}");
        for (name, failed) in [("dead", &mut dead), ("other", &mut other)] {
            if get(&world, name).await.phase() == MachinePhase::Failed {
                failed.get_or_insert(minute);
            }
        }
        // And is silent for 40 s, in which no kubelet of its is heard.
        gate.open(false);
        for node in ["alive", "dead"] {
            say_ready(red.client(), node, "Unknown").await;
        }
        sleep(Duration::from_secs(40)).await;
    }
    let other = other.expect("a dead machine of a cluster that answers fails");
    assert!(other <= 5, "as if red did not exist: {other} min");
    let dead = dead.expect("one of a cluster that flaps fails, however slowly");
    assert!(dead > 15, "{dead} min");
    world.stop().await;
    red.stop().await;
    blue.stop().await;
}
