//! Objects that whole-stack tests apply, and waits for their states.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use ostler_api::machine::{Machine, MachinePhase, MachineStep, WaitReason};
use ostler_api::names::{label, node_condition};
use serde_json::{Value, json};

use crate::world::World;

/// A class of the fake driver.
pub fn class(name: &str, spec: &Value) -> Value {
    class_of("fake.ostler.dev", name, spec)
}

/// A class of any provider.
pub fn class_of(provider: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": { "name": name, "namespace": "default" },
        "provider": provider,
        "providerSpec": spec,
        "secretRef": { "name": "fake", "namespace": "default" },
    })
}

/// A machine of a class.
pub fn machine(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "class": { "kind": "MachineClass", "name": class } },
    })
}

/// The machine is in this phase.
pub fn in_phase(phase: MachinePhase) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| machine.is_some_and(|machine| machine.phase() == phase)
}

/// The machine is at this step.
pub fn at_step(step: MachineStep) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.step.as_ref()) == Some(&step)
    }
}

/// The machine waits for this.
pub fn waits_for(reason: WaitReason) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.waiting_for.as_ref()).is_some_and(|it| it.reason == reason)
    }
}

/// The machine is no more.
pub fn gone(machine: Option<&Machine>) -> bool {
    machine.is_none()
}

/// Deletes a machine.
///
/// # Panics
/// If that is refused.
pub async fn delete(world: &World, name: &str) {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.delete(name, &DeleteParams::default()).await.expect("machines can be deleted");
}

/// Reads a machine.
///
/// # Panics
/// If it is not there.
pub async fn get(world: &World, name: &str) -> Machine {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.get(name).await.expect("the machine is there")
}

/// How many instances the fake cloud holds.
///
/// # Panics
/// If it cannot be read.
pub fn instances(world: &World) -> usize {
    world.cloud().instances().expect("the cloud can be read").len()
}

/// How many Nodes there are.
///
/// # Panics
/// If they cannot be listed.
pub async fn nodes(world: &World) -> usize {
    let api = Api::<Node>::all(world.client());
    api.list(&ListParams::default()).await.expect("nodes can be listed").items.len()
}

/// The agents on the Nodes: each updates its Node when that is empty. Ends with the API server.
pub async fn agents(client: Client) {
    let api = Api::<Node>::all(client);
    let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) = event else {
            continue;
        };
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().any(|one| {
            one.type_ == node_condition::IN_PLACE_UPDATE
                && one.reason.as_deref() == Some("ReadyForUpdate")
        });
        let labels = node.metadata.labels.unwrap_or_default();
        if ready && !labels.contains_key(label::UPDATE_RESULT) {
            let done = json!({ "metadata": { "labels": { label::UPDATE_RESULT: "successful" } } });
            let name = node.metadata.name.unwrap_or_default();
            // It may be gone meanwhile.
            api.patch(&name, &PatchParams::default(), &Patch::Merge(done)).await.ok();
        }
    }
}
