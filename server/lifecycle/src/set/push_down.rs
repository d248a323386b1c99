//! Changes of the template that existing Machines take over.

use std::sync::Arc;

use ostler_api::{
    Machine, MachineSet,
    machine::MachineSpec,
    names::annotation::{EFFECTIVE_CREATION_TIMEOUT, PRESERVE},
    timeout::Timeout,
};
use serde_json::{Value, json};

use super::preserve::Preserved;
use crate::difference::merge_patch;
use crate::push_down::{has_all, push_down};

/// The spec of a Machine with the values taken over from a template.
pub fn pushed(spec: &MachineSpec, set: &MachineSet) -> MachineSpec {
    let mut spec = spec.clone();
    push_down(&set.spec.template.spec, &mut spec);
    if let Some(text) = creation_timeout(set) {
        spec.creation_timeout = Some(text.into());
    }
    spec
}

/// The creation timeout from the set's annotation. As in machine-controller-manager, a value that is no duration counts
/// as absent.
pub(super) fn creation_timeout(set: &MachineSet) -> Option<&str> {
    let text = set.annotation(EFFECTIVE_CREATION_TIMEOUT)?;
    Timeout::from(text).duration().map(|_| text)
}

/// A merge patch for each differing Machine. Machines that are being deleted take it over as well: a shorter drain
/// timeout ends a drain that is stuck.
pub(super) fn patches(
    set: &MachineSet,
    claimed: &[Arc<Machine>],
    preserved: &Preserved,
) -> Vec<(Arc<Machine>, Value)> {
    let template = pushed(&set.spec.template.spec, set);
    let patch = |machine: &Arc<Machine>| {
        let differs = !has_all(&template, &machine.spec);
        let spec = differs.then(|| spec_patch(&machine.spec, &template)).flatten();
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

/// The merge patch of a spec for the values taken over from a template.
pub(crate) fn spec_patch(old: &MachineSpec, template: &MachineSpec) -> Option<Value> {
    let mut new = old.clone();
    push_down(template, &mut new);
    let value = |spec: &MachineSpec| serde_json::to_value(spec).unwrap_or_default();
    merge_patch(&value(old), &value(&new))
}
