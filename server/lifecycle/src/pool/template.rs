//! The Machine of an instance, and changes of the pool's template for existing Machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ostler_api::{
    Machine, MachinePool, SpecDigest,
    bootstrap::Bootstrap,
    machine::{InstanceStatus, MachineSpec},
    names::{self, annotation, label},
};
use serde_json::{Value, json};

use super::{
    BURST_OF_MACHINES, Facts, Snapshot,
    group::Instance,
    in_place,
    matching::Member,
    name::{is_label_value, label_value, machine_name},
    way::hash_of,
};
use crate::{
    class_facts::ClassFacts,
    difference::merge_patch,
    digest,
    push_down::{has_all, push_down},
};

/// Annotations that users, autoscalers and the Machine's own controller change and take away: the template says what a
/// Machine is made with, and no more. So it is with the marks of an update in place, whose end takes them away. A
/// restart replaces the Machines that are older than the restart.
const OF_OTHERS: [&str; 6] = [
    annotation::PRESERVE,
    annotation::LAST_NODE_PRESERVE,
    annotation::PRIORITY,
    annotation::DELETE_MACHINE,
    annotation::CLUSTER_API_DELETE_MACHINE,
    annotation::RESTARTED_AT,
];

/// The reference that makes a pool the controller of a Machine.
pub fn owner_reference(pool: &MachinePool) -> OwnerReference {
    OwnerReference {
        api_version: names::OWN_API_VERSION.to_owned(),
        kind: names::MACHINE_POOL.to_owned(),
        name: pool.name().to_owned(),
        uid: pool.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The Machine of an instance.
pub fn machine(pool: &MachinePool, instance: &Instance) -> Machine {
    let mut machine = of_template(pool);
    if is_label_value(&instance.node_name) {
        let labels = machine.metadata.labels.get_or_insert_default();
        labels.insert(label::NODE.to_owned(), instance.node_name.clone());
    }
    machine.metadata.name = Some(machine_name(pool.name(), &instance.id, &instance.provider_id));
    machine.spec.provider_id = Some(instance.provider_id.clone());
    machine
}

/// The Machine of an instance, without a Node that another Machine has.
pub(super) fn new_machine(snap: &Snapshot, instance: &Instance) -> Machine {
    let mut machine = machine(&snap.pool, instance);
    if machine.node_name().is_some_and(|node| snap.others.nodes.contains(node)) {
        machine.metadata.labels.get_or_insert_default().remove(label::NODE);
    }
    machine
}

/// The common Machine of a pool. Their bootstrap is done: an empty name of a secret, as Cluster API has it.
pub fn of_template(pool: &MachinePool) -> Machine {
    let template = pool.spec.template.metadata.clone().unwrap_or_default();
    let mut labels = template.labels.unwrap_or_default();
    labels.extend(own_labels(pool));
    let mut finalizers = template.finalizers.unwrap_or_default();
    finalizers.push(names::finalizer::MACHINE.to_owned());
    let mut spec = MachineSpec {
        class: pool.spec.template.spec.class.clone(),
        bootstrap: Some(Bootstrap {
            data_secret_name: Some(String::new()),
            ..Bootstrap::default()
        }),
        version: pool.spec.template.spec.version.clone(),
        ..MachineSpec::default()
    };
    push_down(&pool.spec.template.spec, &mut spec);
    Machine {
        metadata: ObjectMeta {
            namespace: pool.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![owner_reference(pool)]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

pub(super) fn own_labels(pool: &MachinePool) -> impl Iterator<Item = (String, String)> {
    let cluster = pool.spec.cluster_name.clone();
    let cluster = cluster.map(|name| (label::CLUSTER_NAME.to_owned(), name));
    cluster.into_iter().chain([(label::POOL_NAME.to_owned(), label_value(pool.name()))])
}

/// One merge patch for each Machine that differs from the template, including Machines in deletion: a shorter drain
/// timeout ends a stuck drain. A provider id that a user erased or changed is put back.
pub fn patches(pool: &MachinePool, machines: &[Arc<Machine>]) -> Vec<(Arc<Machine>, Value)> {
    let template = &pool.spec.template.spec;
    let metadata = pool.spec.template.metadata.clone().unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    labels.remove(label::NODE);
    labels.extend(own_labels(pool));
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| !in_place::MARKS.iter().chain(&OF_OTHERS).any(|it| it == key));
    let patch = |machine: &Arc<Machine>| {
        let lacks = lacking(&labels, |key| machine.label(key));
        let lacks_annotations = lacking(&annotations, |key| machine.annotation(key));
        let same =
            has_all(template, &machine.spec) && machine.provider_id() == machine.instance_id();
        let spec = if same { None } else { spec_patch(machine, template) };
        if lacks.is_empty() && lacks_annotations.is_empty() && spec.is_none() {
            return None;
        }
        // Empty values change nothing.
        let patch = json!({
            "metadata": { "labels": lacks, "annotations": lacks_annotations },
            "spec": spec.unwrap_or_else(|| json!({})),
        });
        Some((machine.clone(), patch))
    };
    machines.iter().filter_map(patch).collect()
}

/// A Machine whose instance has the current model, however it got it, is of the class and version of the template.
pub(super) fn of_the_model(facts: &Facts<'_>) -> Vec<(Arc<Machine>, Value)> {
    let template = &facts.snap.pool.spec.template.spec;
    if facts.class.is_none() {
        // The known model may not be the template's.
        return Vec::new();
    }
    let patch = |member: Member<'_>| {
        let spec = &member.machine.spec;
        // Its status says so first: of both writes, a pass makes one.
        let said = member.machine.status.as_ref()?.instance.as_ref()?.model_hash.as_ref();
        let is_current = said == Some(&facts.model);
        let same = spec.class.name == template.class.name && spec.version == template.version;
        if !is_current || same {
            return None;
        }
        let spec = json!({ "class": { "name": template.class.name }, "version": template.version });
        Some((Arc::clone(member.machine), json!({ "spec": spec })))
    };
    facts.live().filter_map(patch).collect()
}

/// Wanted entries that are missing. Nothing is removed: the template's former entries are recorded nowhere.
fn lacking<'a>(
    wanted: &BTreeMap<String, String>,
    has: impl Fn(&str) -> Option<&'a str>,
) -> serde_json::Map<String, Value> {
    let lacks = wanted.iter().filter(|(key, value)| has(key) != Some(value.as_str()));
    lacks.map(|(key, value)| (key.clone(), json!(value))).collect()
}

fn spec_patch(machine: &Machine, template: &MachineSpec) -> Option<Value> {
    let mut new = machine.spec.clone();
    push_down(template, &mut new);
    new.provider_id = machine.instance_id().cloned().or(new.provider_id);
    let value = |spec: &MachineSpec| serde_json::to_value(spec).unwrap_or_default();
    merge_patch(&value(&machine.spec), &value(&new))
}

/// Digests of everything in template and class that an instance is made from: class and provider spec, version, the name of
/// the bootstrap data and not what they say, since tokens in them change all the time, the zones, and when a user last
/// restarted it. The provider spec has a digest of its own: a running instance may take a part of that.
pub fn model_hash(pool: &MachinePool, class: &ClassFacts) -> SpecDigest {
    let spec = &pool.spec.template.spec;
    let bootstrap = spec.bootstrap.as_ref();
    let mut content = json!({
        "class": class.name,
        "version": spec.version,
        "config": bootstrap.and_then(|it| it.config_ref.as_ref()),
        "secret": bootstrap.and_then(|it| it.data_secret_name.as_ref()),
        "data": bootstrap.and_then(|it| it.data.as_ref()).map(|it| digest::of_text(it.expose())),
        "zones": pool.spec.failure_domains,
    });
    let annotations = pool.spec.template.metadata.as_ref().and_then(|it| it.annotations.as_ref());
    if let Some(at) = annotations.and_then(|all| all.get(annotation::RESTARTED_AT))
        && let Some(content) = content.as_object_mut()
    {
        content.insert("restarted".to_owned(), json!(at));
    }
    hash_of(&digest::of_text(&digest::canonical(&content)), &class.spec_digest)
}

/// The instance statuses to write: one more than a pass writes, if there are more.
pub(super) fn instance_news(facts: &Facts<'_>) -> Vec<(Arc<Machine>, InstanceStatus)> {
    let news = facts.matched.members.iter().filter_map(|Member { machine, instance }| {
        let said = instance_status((*instance)?, &facts.model);
        let before = machine.status.as_ref().and_then(|status| status.instance.as_deref());
        let named = machine.status.as_ref().is_some_and(|it| it.instance_provider_id.is_some());
        (before != Some(&said) || !named).then(|| (Arc::clone(machine), said))
    });
    news.take(BURST_OF_MACHINES + 1).collect()
}

/// The wanted instance status of a Machine. `model`: the current model.
fn instance_status(instance: &Instance, model: &SpecDigest) -> InstanceStatus {
    InstanceStatus {
        id: Some(instance.id.clone()).filter(|id| !id.is_empty()),
        name: Some(instance.name.clone()).filter(|name| !name.is_empty()),
        provisioning_state: instance.state.clone(),
        latest_model_applied: instance.model_hash == *model,
        model_hash: Some(instance.model_hash.clone()).filter(|hash| !hash.is_empty()),
        fault: instance.fault.clone(),
    }
}
