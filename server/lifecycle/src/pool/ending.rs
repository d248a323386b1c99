//! How far the end of a Machine of a pool has come.

use ostler_api::{Machine, ProviderId, machine::MachineStep, names::annotation::INSTANCE_GONE};

/// Whether it says already that its instance is gone. Of one without an id, that means nothing before it is deleted.
pub fn is_told_gone(machine: &Machine) -> bool {
    let id = machine.instance_id().map(ProviderId::as_str).unwrap_or_default();
    machine.annotation(INSTANCE_GONE) == Some(id) && (!id.is_empty() || machine.is_deleting())
}

/// Whether everything is done before its instance goes: its Node is drained, and no hook holds it.
pub fn awaits_its_end(machine: &Machine) -> bool {
    let step = machine.status.as_ref().and_then(|status| status.step.as_ref());
    machine.is_deleting() && step == Some(&MachineStep::DeleteInstance)
}
