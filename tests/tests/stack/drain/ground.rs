//! Objects of these tests.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_tests::objects::{in_phase, machine};
use ostler_tests::world::World;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A running machine, whose Node has the same name.
pub(crate) async fn running(world: &World, name: &str) {
    world.apply::<Machine>(machine(name, "fake")).await;
    world.until(name, "Running", in_phase(MachinePhase::Running)).await;
}

/// A pod with a label of its name.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name, "all": "yes" } },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 30,
            "containers": [{ "name": "app", "image": "pause" }],
        },
    })
}

/// A pod that runs.
pub(crate) async fn runs(world: &World, pod: Value) {
    let made = world.apply::<Pod>(pod).await;
    let name = made.metadata.name.unwrap();
    let api = Api::<Pod>::default_namespaced(world.client());
    let is_running = |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    await_condition(api, &name, is_running).await.expect("pods can be watched");
}

/// A budget that lets none of the pods with this label go.
pub(crate) async fn budget(world: &World, name: &str, key: &str, value: &str) {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "minAvailable": 100_000, "selector": { "matchLabels": { key: value } } },
    });
    world.apply::<PodDisruptionBudget>(object).await;
    let api = Api::<PodDisruptionBudget>::default_namespaced(world.client());
    let is_computed = |budget: Option<&PodDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.observed_generation.is_some())
    };
    await_condition(api, name, is_computed).await.expect("budgets can be watched");
}

/// Deletes an object of the default namespace.
pub(crate) async fn remove<K>(world: &World, name: &str)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let api = Api::<K>::default_namespaced(world.client());
    api.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
}

/// Changes the status of a Node.
pub(crate) async fn node_status(world: &World, name: &str, status: Value) {
    let api = Api::<Node>::all(world.client());
    let patch = Patch::Strategic(json!({ "status": status }));
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("nodes can be patched");
}

/// Reasons of the events about objects of this kind and name.
pub(crate) async fn events(world: &World, kind: &str, name: &str) -> Vec<String> {
    let api = Api::<k8s_openapi::api::events::v1::Event>::all(world.client());
    let all = api.list(&ListParams::default()).await.expect("events can be listed").items;
    all.into_iter()
        .filter(|event| {
            let about = event.regarding.clone().unwrap_or_default();
            about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name)
        })
        .filter_map(|event| event.reason)
        .collect()
}
