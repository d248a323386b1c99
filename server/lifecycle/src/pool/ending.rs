//! The progress of the end of a pool, and of a Machine in the pool.

use ostler_api::{Machine, ProviderId, machine::MachineStep, names::annotation::INSTANCE_GONE};

use super::Facts;

/// Whether the Machine has the annotation of a gone instance. Without a provider id, the annotation counts only on a
/// Machine in deletion.
pub fn is_marked_gone(machine: &Machine) -> bool {
    let id = machine.instance_id().map(ProviderId::as_str).unwrap_or_default();
    machine.annotation(INSTANCE_GONE) == Some(id) && (!id.is_empty() || machine.is_deleting())
}

/// Whether the Machine is being deleted and has drained: no hook holds it, and its instance may go.
pub fn has_drained(machine: &Machine) -> bool {
    let step = machine.status.as_ref().and_then(|status| status.step.as_ref());
    machine.is_deleting() && step == Some(&MachineStep::DeleteInstance)
}

/// Whether the finalizer goes: the pool is deleted, nothing is left, and the driver said so, or was never asked.
pub(super) fn is_over(facts: &Facts<'_>) -> bool {
    let snap = facts.snap;
    let (pool, standing) = (&snap.pool, &facts.standing);
    if !pool.is_deleting() || !snap.machines.is_empty() || standing.busy {
        return false;
    }
    let asked = pool.status.as_ref().is_some_and(|it| it.asked || it.operation.is_some());
    // A deletion covers the remains of a creation, for it proves the absence of a group.
    let unconfirmed = standing.shown_at().is_some();
    standing.deleted || !asked || facts.is_group_gone() && !unconfirmed
}
