//! Which namespaces a core serves: a list, each watched by itself, or all with a prefix.

#![expect(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::names::{annotation, finalizer};
use ostler_api::{MachineClass, MachineDeployment, MachineSet};
use ostler_tests::objects::{in_phase, instances, machine, waits_for};
use ostler_tests::world::{Setup, World};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn serving(namespaces: &'static str, home: &'static str) -> Setup {
    Setup::tuned(move |options| {
        options.settings.namespaces = namespaces.parse().unwrap();
        home.clone_into(&mut options.settings.home);
        options.settings.controllers = "*".parse().unwrap();
    })
}

/// Creates an object of a kind in a namespace.
async fn create<K>(world: &World, namespace: &str, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api = Api::<K>::namespaced(world.client(), namespace);
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A namespace with a secret, a class and a machine of it. `secret_in`: which namespace the class
/// says the secret is in.
async fn furnish(world: &World, namespace: &str, secret_in: &str) {
    let space = json!({ "metadata": { "name": namespace } });
    let spaces = Api::<Namespace>::all(world.client());
    let space = serde_json::from_value(space).unwrap();
    spaces.create(&PostParams::default(), &space).await.unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
        "stringData": { "userData": "join <<BOOTSTRAP_TOKEN>>" },
    });
    create::<Secret>(world, namespace, secret).await;
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c" }, "provider": "fake.ostler.dev",
        "providerSpec": { "region": "local", "image": "fake-1.0" },
        "secretRef": { "name": "s", "namespace": secret_in },
    });
    create::<MachineClass>(world, namespace, class).await;
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": format!("m-{namespace}") },
        "spec": { "class": { "kind": "MachineClass", "name": "c" } },
    });
    create::<Machine>(world, namespace, machine).await;
}

async fn until(
    world: &World,
    namespace: &str,
    met: impl Fn(Option<&Machine>) -> bool + Send + Sync,
) {
    let api = Api::<Machine>::namespaced(world.client(), namespace);
    let name = format!("m-{namespace}");
    let day = std::time::Duration::from_hours(24);
    let waited = kube::runtime::wait::await_condition(api, &name, met);
    tokio::time::timeout(day, waited).await.unwrap().unwrap();
}

async fn lives_and_goes(world: &World, namespace: &str) {
    until(world, namespace, in_phase(MachinePhase::Running)).await;
    let api = Api::<Machine>::namespaced(world.client(), namespace);
    let name = format!("m-{namespace}");
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    until(world, namespace, |machine| machine.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn each_namespace_of_a_list_is_served_and_no_other() {
    let mut world = World::start_with(serving("default,red,blue", "default")).await;
    for namespace in ["red", "blue", "green"] {
        furnish(&world, namespace, namespace).await;
    }
    lives_and_goes(&world, "red").await;
    lives_and_goes(&world, "blue").await;
    let green = Api::<Machine>::namespaced(world.client(), "green");
    assert_eq!(green.get("m-green").await.unwrap().status, None, "not served, not touched");
    assert_eq!(instances(&world), 0);
    let map = Api::<ConfigMap>::default_namespaced(world.client());
    let id = map.get("ostler-cluster-id").await.unwrap().data.unwrap()["clusterID"].clone();
    assert!(id.ends_with("/default,red,blue"), "{id}");
    world.stop_core().await;
    world.start_core().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_namespace_with_the_prefix_is_served_also_one_that_comes_later() {
    let world = World::start_with(serving("shoot-*", "kube-system")).await;
    furnish(&world, "shoot-1", "shoot-1").await;
    furnish(&world, "garden", "garden").await;
    lives_and_goes(&world, "shoot-1").await;
    furnish(&world, "shoot-2", "shoot-2").await;
    lives_and_goes(&world, "shoot-2").await;
    let garden = Api::<Machine>::namespaced(world.client(), "garden");
    assert_eq!(garden.get("m-garden").await.unwrap().status, None);
    let leases = Api::<Lease>::namespaced(world.client(), "kube-system");
    assert!(leases.get_opt("machine-controller").await.unwrap().is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_another_namespace_is_refused_though_both_are_served() {
    let world = World::start_with(serving("default,red,blue", "default")).await;
    furnish(&world, "red", "red").await;
    furnish(&world, "blue", "red").await;
    until(&world, "blue", waits_for(WaitReason::SecretNamespaceDenied)).await;
    until(&world, "red", in_phase(MachinePhase::Running)).await;
    assert_eq!(instances(&world), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_the_provider_id_of_another_namespaces_machine_does_not_get_its_node() {
    let world = World::start_with(serving("default,red,blue", "default")).await;
    furnish(&world, "red", "red").await;
    until(&world, "red", in_phase(MachinePhase::Running)).await;
    let red = Api::<Machine>::namespaced(world.client(), "red").get("m-red").await.unwrap();
    furnish(&world, "blue", "blue").await;
    until(&world, "blue", in_phase(MachinePhase::Running)).await;
    let thief = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "thief", "labels": { "node": red.labels()["node"] } },
        "spec": {
            "class": { "kind": "MachineClass", "name": "c" }, "providerID": red.spec.provider_id,
        },
    });
    create::<Machine>(&world, "blue", thief).await;
    let blue = Api::<Machine>::namespaced(world.client(), "blue");
    let day = std::time::Duration::from_hours(24);
    let seen = |machine: Option<&Machine>| machine.is_some_and(|it| it.status.is_some());
    let waited = kube::runtime::wait::await_condition(blue.clone(), "thief", seen);
    tokio::time::timeout(day, waited).await.unwrap().unwrap();
    blue.delete("thief", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    let nodes = Api::<Node>::all(world.client());
    let node = nodes.get(&red.labels()["node"]).await.unwrap();
    assert_eq!(node.spec.unwrap().unschedulable, None);
    until(&world, "red", in_phase(MachinePhase::Running)).await;
    assert_eq!(instances(&world), 2, "that of red and that of blue");
    world.stop().await;
}

/// Deletes a Machine of blue, and waits for as long as a drain takes.
async fn deleted_for_long(world: &World, name: &str) {
    let blue = Api::<Machine>::namespaced(world.client(), "blue");
    blue.delete(name, &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_an_instance_of_its_own_does_not_get_the_node_of_another_machine() {
    let world = World::start_with(serving("default,red,blue", "default")).await;
    furnish(&world, "red", "red").await;
    until(&world, "red", in_phase(MachinePhase::Running)).await;
    let red = Api::<Machine>::namespaced(world.client(), "red").get("m-red").await.unwrap();
    let nodes = Api::<Node>::all(world.client());
    let before = nodes.get(&red.labels()["node"]).await.unwrap();
    furnish(&world, "blue", "blue").await;
    until(&world, "blue", in_phase(MachinePhase::Running)).await;
    // Its instance never joins.
    let thief = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "thief" },
        "spec": {
            "class": { "kind": "MachineClass", "name": "c" }, "bootstrap": { "dataSecretName": "" },
            "nodeTemplate": { "spec": { "taints": [{ "key": "stolen", "effect": "NoSchedule" }] } },
        },
    });
    create::<Machine>(&world, "blue", thief).await;
    let blue = Api::<Machine>::namespaced(world.client(), "blue");
    let day = std::time::Duration::from_hours(24);
    let waited = kube::runtime::wait::await_condition(
        blue.clone(),
        "thief",
        waits_for(WaitReason::NodeNotJoined),
    );
    tokio::time::timeout(day, waited).await.unwrap().unwrap();
    let steals = json!({
        "metadata": { "labels": { "node": red.labels()["node"] } },
        "spec": { "providerID": red.spec.provider_id },
    });
    blue.patch("thief", &PatchParams::default(), &Patch::Merge(&steals)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    assert_ne!(blue.get("thief").await.unwrap().phase(), MachinePhase::Running);
    deleted_for_long(&world, "thief").await;
    let node = nodes.get(&red.labels()["node"]).await.unwrap();
    assert_eq!(
        (&node.metadata.labels, &node.metadata.uid),
        (&before.metadata.labels, &before.metadata.uid)
    );
    let spec = node.spec.unwrap();
    assert_eq!((spec.unschedulable, spec.taints), (None, before.spec.unwrap().taints));
    until(&world, "red", in_phase(MachinePhase::Running)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_runs_gets_no_node_by_a_provider_id_that_its_driver_does_not_confirm() {
    let world = World::start_with(serving("default,blue", "default")).await;
    furnish(&world, "blue", "blue").await;
    until(&world, "blue", in_phase(MachinePhase::Running)).await;
    let nodes = Api::<Node>::all(world.client());
    let server = json!({
        "metadata": { "name": "cp-1" }, "spec": { "providerID": "fake:///local/cp-1" },
    });
    let server = serde_json::from_value(server).unwrap();
    let before = nodes.create(&PostParams::default(), &server).await.unwrap();
    let blue = Api::<Machine>::namespaced(world.client(), "blue");
    let steals = json!({ "spec": { "providerID": "fake:///local/cp-1" } });
    blue.patch("m-blue", &PatchParams::default(), &Patch::Merge(&steals)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    until(&world, "blue", in_phase(MachinePhase::Running)).await;
    deleted_for_long(&world, "m-blue").await;
    let node = nodes.get("cp-1").await.unwrap();
    let of = |node: &Node| (node.metadata.labels.clone(), node.metadata.finalizers.clone());
    assert_eq!(of(&node), of(&before));
    let spec = node.spec.unwrap();
    assert_eq!(spec.unschedulable, None);
    assert!(
        spec.taints.iter().flatten().all(|it| it.key.starts_with("node.kubernetes.io/")),
        "{spec:?}"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_leaves_the_nodes_of_another_core_alone_and_does_not_let_go_of_one_that_is_deleted()
{
    let of_each = Setup::tuned(|options| {
        let (namespaces, home) = match options.settings.identity.as_str() {
            "core-0" => ("default", "default"),
            "core-1" => ("blue", "blue"),
            _ => ("default,blue", "default"),
        };
        options.settings.namespaces = namespaces.parse().unwrap();
        home.clone_into(&mut options.settings.home);
    });
    let world = World::start_with(of_each).await;
    let space = serde_json::from_value(json!({ "metadata": { "name": "blue" } })).unwrap();
    let spaces = Api::<Namespace>::all(world.client());
    spaces.create(&PostParams::default(), &space).await.unwrap();
    let mut other = world.start_replica().await;
    other.core.ready().await.unwrap();
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    tokio::time::sleep(std::time::Duration::from_mins(30)).await;
    let nodes = Api::<Node>::all(world.client());
    let held = async || {
        let node = nodes.get("m").await.unwrap();
        assert_eq!(node.finalizers(), [finalizer::NODE]);
        assert!(!node.annotations().contains_key(annotation::NOT_MANAGED), "{node:?}");
    };
    held().await;
    let pause = json!({ "metadata": { "annotations": { annotation::PAUSED: "true" } } });
    world.patch_machine("m", pause).await;
    nodes.delete("m", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_mins(30)).await;
    held().await;
    let go_on = json!({ "metadata": { "annotations": { annotation::PAUSED: null } } });
    world.patch_machine("m", go_on).await;
    world.until("m", "gone", |machine: Option<&Machine>| machine.is_none()).await;
    assert!(nodes.get_opt("m").await.unwrap().is_none());
    other.stop().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_outside_the_prefix_holds_up_no_deployment() {
    let world = World::start_with(serving("shoot-*", "kube-system")).await;
    let template = json!({
        "metadata": { "labels": { "app": "w" } },
        "spec": { "class": { "kind": "MachineClass", "name": "c" } },
    });
    let selector = json!({ "matchLabels": { "app": "w" } });
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": { "name": "elsewhere" },
        "spec": { "replicas": 0, "selector": selector, "template": template },
    });
    create::<MachineSet>(&world, "default", set).await;
    furnish(&world, "shoot-1", "shoot-1").await;
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "w" },
        "spec": {
            "replicas": 1, "selector": selector, "template": template,
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
            },
        },
    });
    create::<MachineDeployment>(&world, "shoot-1", deployment).await;
    let api = Api::<MachineDeployment>::namespaced(world.client(), "shoot-1");
    let available = |it: Option<&MachineDeployment>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.available_replicas == 1)
    };
    let waited = kube::runtime::wait::await_condition(api, "w", available);
    tokio::time::timeout(std::time::Duration::from_hours(1), waited).await.unwrap().unwrap();
    world.stop().await;
}
