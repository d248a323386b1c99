//! A Machine made from the template of a set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::{Machine, MachineSet, names::annotation::EFFECTIVE_CREATION_TIMEOUT};

use super::{owner_reference, push_down, pushed};
use crate::copies::with_copy;

/// Longest name of a Machine: it becomes a label value, and a host name.
const LONGEST: usize = 63;

/// The name of a Machine: the set's, cut if need be, and what tells it from the others.
pub fn machine_name(set: &str, suffix: &str) -> String {
    let room = LONGEST.saturating_sub(suffix.len() + 1);
    let cut = set.char_indices().map(|(at, _)| at).take_while(|at| *at <= room).last();
    let base = if set.len() <= room { set } else { set.get(..cut.unwrap_or(0)).unwrap_or(set) };
    format!("{}-{suffix}", base.trim_end_matches(['-', '.']))
}

/// The Machine of this name. The namespace of the template is ignored; the priority comes from who looks after
/// Machines.
pub fn machine(set: &MachineSet, name: &str) -> Machine {
    let template = set.spec.template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    if let Some(text) = push_down::creation_timeout(set) {
        annotations.insert(EFFECTIVE_CREATION_TIMEOUT.to_owned(), text.to_owned());
    }
    Machine {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: set.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations).filter(|all| !all.is_empty()),
            finalizers: template.finalizers,
            owner_references: Some(vec![owner_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: with_copy(pushed(&set.spec.template.spec, set), name),
        status: None,
    }
}
