//! What existing Machines take over from a template that changed: Node template, timeouts, the kind of the class. Not
//! its name, labels or annotations: those need new Machines.

use std::sync::Arc;

use ostler_api::{
    Machine, MachineSet,
    machine::MachineSpec,
    names::annotation::{EFFECTIVE_CREATION_TIMEOUT, PRESERVE},
};
use serde_json::{Value, json};

use super::preserve::Preserved;
use crate::record::merge_patch;

/// The spec of a Machine with what it takes over from a template.
pub fn pushed(spec: &MachineSpec, set: &MachineSet) -> MachineSpec {
    let template = &set.spec.template.spec;
    let mut spec = spec.clone();
    spec.class.kind.clone_from(&template.class.kind);
    spec.node_template.clone_from(&template.node_template);
    spec.drain_timeout.clone_from(&template.drain_timeout);
    spec.health_timeout.clone_from(&template.health_timeout);
    spec.creation_timeout.clone_from(&template.creation_timeout);
    spec.in_place_update_timeout.clone_from(&template.in_place_update_timeout);
    spec.machine_preserve_timeout.clone_from(&template.machine_preserve_timeout);
    spec.disable_health_timeout = template.disable_health_timeout;
    spec.max_evict_retries = template.max_evict_retries;
    spec.node_conditions.clone_from(&template.node_conditions);
    if let Some(text) = set.annotation(EFFECTIVE_CREATION_TIMEOUT) {
        spec.creation_timeout = Some(text.into());
    }
    spec
}

/// One merge patch for each Machine that differs. Machines that are being deleted take it over as well: a shorter
/// drain timeout ends a drain that is stuck.
pub(super) fn patches(
    set: &MachineSet,
    claimed: &[Arc<Machine>],
    preserved: &Preserved,
) -> Vec<(Arc<Machine>, Value)> {
    let patch = |machine: &Arc<Machine>| {
        let wanted = pushed(&machine.spec, set);
        let spec = if wanted == machine.spec { None } else { spec_patch(&machine.spec, &wanted) };
        let mark = preserved.change(machine.uid());
        if spec.is_none() && mark.is_none() {
            return None;
        }
        let mut patch = json!({
            "metadata": { "resourceVersion": machine.metadata.resource_version }
        });
        let fields = patch.as_object_mut()?;
        fields.extend(spec.map(|spec| ("spec".to_owned(), spec)));
        if let (Some(mark), Some(metadata)) = (mark, fields.get_mut("metadata")) {
            metadata.as_object_mut()?.insert("annotations".to_owned(), json!({ PRESERVE: mark }));
        }
        Some((machine.clone(), patch))
    };
    claimed.iter().filter_map(patch).collect()
}

fn spec_patch(old: &MachineSpec, new: &MachineSpec) -> Option<Value> {
    let value = |spec: &MachineSpec| serde_json::to_value(spec).unwrap_or_default();
    merge_patch(&value(old), &value(new))
}
