//! Whether everything is as it is wanted, once nothing goes wrong any more.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Secret};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_driver_fake::cloud::Instance;
use ostler_driver_fake::spec::Resource;
use serde_json::Value;

use super::checks;
use super::groups::{self, rules::controller};
use super::oracle::is_of;
use super::pools;
use super::reserves;
use super::users::{class_name, joins};
use super::world::World;

/// Objects that are not settled yet.
pub async fn unsettled(world: &World) -> Vec<String> {
    let machines: Vec<Machine> = world.users.all().await;
    let classes: Vec<MachineClass> = world.users.all().await;
    let nodes: Vec<Node> = world.users.all().await;
    let instances = instances(world);
    let (pooled, others): (Vec<Machine>, Vec<Machine>) =
        machines.iter().cloned().partition(Machine::has_pool);
    let mut found = Vec::new();
    for machine in &others {
        found.extend(machine_unsettled(machine, &classes, &nodes, &instances));
    }
    found.extend(groups::settled::unsettled(&world.users, &others).await);
    found.extend(pools::settled::unsettled(world, &pooled).await);
    found.extend(checks::users::unsettled(&world.users, &machines).await);
    found.extend(reserves::unsettled(&world.users, &machines, &nodes).await);
    for instance in &instances {
        if !machines.iter().any(|machine| is_of(instance, machine)) {
            found.push(format!("{} is nobody's", instance.provider_id));
        }
    }
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if !machines.iter().any(|machine| machine.name() == name) {
            found.push(format!("node {name} is nobody's"));
        }
    }
    found
}

/// Objects that are left although every machine was deleted.
pub async fn leftovers(world: &World) -> Vec<String> {
    let mut found = groups::settled::leftovers(&world.users).await;
    found.extend(pools::settled::leftovers(world).await);
    for machine in world.users.all::<Machine>().await {
        let status = machine.status.clone().unwrap_or_default();
        found.push(format!(
            "machine {}: step {:?}, waits for {:?}, operation {:?}, retry {:?}",
            machine.name(),
            status.step,
            status.waiting_for,
            status.operation.map(|it| it.kind),
            status.retry,
        ));
    }
    found.extend(instances(world).into_iter().map(|it| format!("instance {}", it.provider_id)));
    found.extend(
        world.around.oracle.untold().into_iter().map(|id| format!("no word of orphan {id}")),
    );
    let names = |name: Option<String>| name.unwrap_or_default();
    let nodes: Vec<Node> = world.users.all().await;
    found.extend(nodes.into_iter().map(|it| format!("node {}", names(it.metadata.name))));
    let secrets = world.users.all::<Secret>().await.into_iter().map(|it| names(it.metadata.name));
    let ours = |name: &String| {
        let token = name.starts_with("bootstrap-token-") && *name != pools::users::token_name();
        token || name.starts_with("ostler-class-")
    };
    found.extend(secrets.filter(ours).map(|name| format!("secret {name}")));
    found
}

/// Instances of our cluster.
fn instances(world: &World) -> Vec<Instance> {
    let all = world
        .around
        .clouds
        .iter()
        .flat_map(|cloud| cloud.instances().expect("a cloud in memory has no journal"));
    all.filter(|it| it.identity.cluster_id != pools::ELSEWHERE).collect()
}

fn machine_unsettled(
    machine: &Machine,
    classes: &[MachineClass],
    nodes: &[Node],
    instances: &[Instance],
) -> Option<String> {
    let name = machine.name();
    let phase = machine.phase();
    if machine.is_deleting() {
        let step = machine.status.as_ref().and_then(|status| status.step.clone());
        return Some(format!("{name} is still deleted, step {step:?}"));
    }
    let number = (0..super::plan::CLASSES).find(|it| class_name(*it) == machine.spec.class.name);
    // Given up is an end for a machine that no set replaces; it is the only one where no Node comes.
    if phase == MachinePhase::Failed && controller(&machine.metadata).is_none() {
        return None;
    }
    if phase != MachinePhase::Running || !number.is_some_and(joins) {
        let waits = machine.status.as_ref().and_then(|status| status.waiting_for.clone());
        return Some(format!("{name} is {phase:?}, waits for {waits:?}"));
    }
    let own: Vec<&Instance> =
        instances.iter().filter(|it| it.identity.machine_uid == machine.uid()).collect();
    let [instance] = own.as_slice() else {
        return Some(format!("{name} is Running and has {} instances", own.len()));
    };
    if !nodes.iter().any(|node| node.metadata.name.as_deref() == Some(name)) {
        return Some(format!("{name} is Running and has no Node"));
    }
    let class =
        classes.iter().find(|it| it.metadata.name.as_ref() == Some(&machine.spec.class.name));
    let wanted = class.map(wanted_version).unwrap_or_default();
    let versions: BTreeMap<_, _> = Resource::ALL
        .into_iter()
        .map(|part| (part.path(), instance.tags(part).tags.get("version").cloned()))
        .collect();
    if versions.values().any(|version| version.as_deref() != Some(wanted.as_str())) {
        return Some(format!("{name} has tags of {versions:?} in place of {wanted:?}"));
    }
    None
}

fn wanted_version(class: &MachineClass) -> String {
    let class = serde_json::to_value(class).unwrap_or_default();
    let version = class.pointer("/providerSpec/tags/vm/version").and_then(Value::as_str);
    version.unwrap_or_default().to_owned()
}
