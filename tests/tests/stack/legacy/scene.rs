//! A class and a secret for the old driver, machines, and the Nodes that its instances would become.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DeleteParams};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_tests::legacy_driver::{OldCloud, PROVIDER, run};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

/// The name of the class `old`, as the driver is told.
pub(crate) const PATH: &str =
    "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/oldmachineclasses/old";

/// The whole stack with classes `old` and `other`, each with a secret of its own, and no old driver yet.
pub(crate) async fn world() -> World {
    world_with(Setup::default()).await
}

/// The same with something different.
pub(crate) async fn world_with(setup: Setup) -> World {
    let world = World::start_with(setup).await;
    for name in ["old", "other"] {
        world.apply::<Secret>(secret(name)).await;
        world.apply::<MachineClass>(class(name, &tags())).await;
    }
    world
}

/// An old driver that runs until the handle is aborted.
pub(crate) fn driver(world: &World, cloud: &OldCloud) -> AbortHandle {
    let (wire, cloud) = (world.legacy(), cloud.clone());
    let running = tokio::spawn(async move {
        let connect = move || {
            let wire = wire.clone();
            async move { wire.connect().await }
        };
        run(connect, cloud).await;
    });
    running.abort_handle()
}

pub(crate) fn tags() -> Value {
    json!({ "kubernetes.io/cluster/dev": "1", "kubernetes.io/role/node": "1" })
}

pub(crate) fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": format!("secret-of-{name}"), "namespace": "default" },
        "stringData": {
            "userData": "name=<<MACHINE_NAME>> token=<<BOOTSTRAP_TOKEN>>",
            "accessKey": format!("key-of-{name}"),
        },
    })
}

pub(crate) fn class(name: &str, tags: &Value) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {
            "name": name, "namespace": "default",
            "annotations": { "ostler.dev/adopt-by-name": "true" },
        },
        "provider": PROVIDER,
        "providerSpec": { "region": "eu", "tags": tags },
        "secretRef": { "name": format!("secret-of-{name}"), "namespace": "default" },
    })
}

pub(crate) async fn create(world: &World, name: &str, class: &str) {
    world
        .apply::<Machine>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": class } },
        }))
        .await;
}

pub(crate) async fn delete(world: &World, name: &str) {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

pub(crate) async fn get(world: &World, name: &str) -> Machine {
    Api::<Machine>::default_namespaced(world.client()).get(name).await.unwrap()
}

/// Joins a Node, as the kubelet of an instance would.
pub(crate) async fn join(world: &World, node: &str, provider_id: &str) {
    world
        .create::<Node>(
            &serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": node },
                "spec": { "providerID": provider_id },
                "status": { "conditions": [
                    { "type": "Ready", "status": "True", "reason": "KubeletReady" },
                ] },
            }))
            .unwrap(),
        )
        .await;
}

pub(crate) fn running(machine: Option<&Machine>) -> bool {
    machine.is_some_and(|machine| machine.phase() == MachinePhase::Running)
}

pub(crate) fn has_instance(machine: Option<&Machine>) -> bool {
    machine.is_some_and(|machine| machine.provider_id().is_some())
}

pub(crate) fn gone(machine: Option<&Machine>) -> bool {
    machine.is_none()
}

pub(crate) fn waits_for(reason: WaitReason) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.waiting_for.as_ref()).is_some_and(|it| it.reason == reason)
    }
}
