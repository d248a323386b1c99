//! A set that the deployment adopted has no `machine-template-hash`, so its selector also selects the Machines of other
//! sets. It gets the label in three writes, each of which can be the last for a while: template, Machines, selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::names::label::TEMPLATE_HASH;
use ostler_api::{Machine, MachineSet};
use serde_json::json;

use super::pass::Pass;
use super::snapshot::SetView;
use crate::set::is_active;
use crate::template_identity::hash;

/// Most Machines that one pass labels; the next pass continues.
const MACHINES: usize = 50;

/// The next thing to be labelled.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The set's template: new Machines get the label.
    Template(String),
    /// Machines that were created before.
    Machines(String, Vec<Arc<Machine>>),
    /// The set may still be creating Machines of the former template, which its selector must not lose.
    Wait,
    /// Labels and selector of the set.
    Selector(String),
}

/// The missing step; `None`: nothing is missing.
pub(super) fn step(view: &SetView, collisions: i32) -> Option<Step> {
    let set = view.set.as_ref();
    let selector = set.spec.selector.as_ref()?.match_labels.as_ref();
    if set.is_deleting() || selector.is_some_and(|labels| labels.contains_key(TEMPLATE_HASH)) {
        return None;
    }
    let Some(tag) = template_hash(set) else {
        return Some(Step::Template(hash(&set.spec.template, collisions)));
    };
    let active = || view.machines.iter().map(|it| &it.machine).filter(|it| is_active(it));
    let lacking = active().filter(|machine| machine.label(TEMPLATE_HASH) != Some(tag));
    let lacking: Vec<_> = lacking.take(MACHINES).cloned().collect();
    if !lacking.is_empty() {
        return Some(Step::Machines(tag.to_owned(), lacking));
    }
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    let complete = i32::try_from(active().count()) == Ok(set.spec.replicas());
    let settled = complete && observed == set.metadata.generation;
    Some(if settled { Step::Selector(tag.to_owned()) } else { Step::Wait })
}

fn template_hash(set: &MachineSet) -> Option<&str> {
    let labels = set.spec.template.metadata.as_ref()?.labels.as_ref()?;
    labels.get(TEMPLATE_HASH).map(String::as_str)
}

fn labels_mut(metadata: &mut ObjectMeta) -> &mut BTreeMap<String, String> {
    metadata.labels.get_or_insert_default()
}

impl Pass<'_> {
    /// Takes the next step for each set without the label.
    pub(super) fn relabel(&mut self) {
        let collisions = self.status.collision_count.unwrap_or_default();
        let mut machines = Vec::new();
        for (view, set) in self.views.iter().zip(&mut self.sets) {
            match step(view, collisions) {
                None | Some(Step::Wait) => {}
                Some(Step::Template(tag)) => {
                    let metadata = set.spec.template.metadata.get_or_insert_default();
                    labels_mut(metadata).insert(TEMPLATE_HASH.to_owned(), tag);
                }
                Some(Step::Machines(tag, lacking)) => {
                    machines.extend(lacking.into_iter().map(|machine| (machine, tag.clone())));
                }
                Some(Step::Selector(tag)) => {
                    labels_mut(&mut set.metadata).insert(TEMPLATE_HASH.to_owned(), tag.clone());
                    let selector = set.spec.selector.get_or_insert_default();
                    let labels = selector.match_labels.get_or_insert_default();
                    labels.insert(TEMPLATE_HASH.to_owned(), tag);
                }
            }
        }
        for (machine, tag) in machines {
            let patch = json!({ "metadata": {
                "resourceVersion": machine.metadata.resource_version,
                "labels": { TEMPLATE_HASH: tag },
            }});
            self.write_to_machine(&machine, patch);
        }
    }
}
