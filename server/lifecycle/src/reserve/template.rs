//! The Machines of a reserve: like the target's, but unmatched by its selector and without pods.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use ostler_api::{
    Machine, MachineReserve, MachineSet,
    machine_reserve::TaintEffect,
    machine_set::MachineSetSpec,
    names::{
        self,
        annotation::{RESERVE_TEMPLATE, SCALE_DOWN_DISABLED},
        label, taint,
    },
};

use super::Facts;
use crate::{selector::Labels, set, template_identity::digest};

/// Labels for the place of an instance and for its cluster. The labels stay, whatever the selector
/// says.
const OF_PLACE: [&str; 2] = [label::CLUSTER_NAME, label::ZONE];
/// Labels by which others find the Machines of a deployment.
const OF_TARGET: [&str; 2] = [label::DEPLOYMENT_NAME, label::TEMPLATE_HASH];

/// The Machine of this name.
pub(super) fn machine(reserve: &MachineReserve, target: &Facts<'_>, name: &str) -> Machine {
    let like = MachineSet {
        metadata: target.meta.clone(),
        spec: MachineSetSpec { template: target.template.clone(), ..MachineSetSpec::default() },
        status: None,
    };
    let mut machine = set::machine(&like, name);
    let meta = &mut machine.metadata;
    meta.labels = Some(labels(reserve, target));
    meta.namespace.clone_from(&reserve.metadata.namespace);
    meta.owner_references = Some(vec![owner_reference(reserve)]);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(RESERVE_TEMPLATE.to_owned(), digest(target.template));
    let node = machine.spec.node_template.get_or_insert_default();
    let of_node = node.metadata.get_or_insert_default().annotations.get_or_insert_default();
    of_node.insert(SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
    let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
    taints.push(Taint {
        key: taint::RESERVE.to_owned(),
        effect: effect(reserve).to_owned(),
        ..Taint::default()
    });
    machine
}

fn effect(reserve: &MachineReserve) -> &str {
    reserve.spec.taint_effect.as_ref().unwrap_or(&TaintEffect::NoSchedule).as_str()
}

fn owner_reference(reserve: &MachineReserve) -> OwnerReference {
    OwnerReference {
        api_version: names::OWN_API_VERSION.to_owned(),
        kind: names::MACHINE_RESERVE.to_owned(),
        name: reserve.name().to_owned(),
        uid: reserve.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The labels of the template without the selector's.
pub(super) fn labels(reserve: &MachineReserve, target: &Facts<'_>) -> Labels {
    let metadata = target.template.metadata.as_ref();
    let mut labels = metadata.and_then(|it| it.labels.clone()).unwrap_or_default();
    let asked = target.selector.map(keys).unwrap_or_default();
    labels.retain(|key, _| {
        let key = key.as_str();
        OF_PLACE.contains(&key) || !OF_TARGET.contains(&key) && !asked.contains(&key)
    });
    labels.insert(label::RESERVE.to_owned(), reserve.name().to_owned());
    labels
}

fn keys(selector: &LabelSelector) -> Vec<&str> {
    let exact = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    let rules = selector.match_expressions.iter().flatten().map(|rule| rule.key.as_str());
    exact.chain(rules).collect()
}
