//! Control and target cluster apart, and machines without a target cluster.

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{Api, ListParams, PostParams};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_server::TargetCluster;
use ostler_tests::objects::{delete, get, gone, in_phase, instances, machine, nodes};
use ostler_tests::world::{Cluster, Setup, World};
use serde_json::json;

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
    world.stop().await;
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
