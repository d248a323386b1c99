//! Decides which changes of a Machine matter to others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::Machine;
use ostler_api::machine::{InstanceNotice, LastOperation, MachineState};
use ostler_api::names::annotation::OPERATION;
use ostler_lifecycle::pool::has_drained;

/// Whether two versions of a machine are the same to a set. Most writes to a machine are steps that no set reads.
pub(crate) fn is_same_to_set(old: &Machine, new: &Machine) -> bool {
    is_same_to_all(old, new) && failure(old) == failure(new)
}

/// Whether two versions of a machine are the same to a pool, and to a health check.
pub(crate) fn is_same_to_pool(old: &Machine, new: &Machine) -> bool {
    let version = |machine: &Machine| machine.status.as_ref().and_then(|it| it.version.clone());
    is_same_to_all(old, new) && has_drained(old) == has_drained(new) && version(old) == version(new)
}

fn is_same_to_all(old: &Machine, new: &Machine) -> bool {
    let (one, other) = (&old.metadata, &new.metadata);
    one.uid == other.uid
        && one.labels == other.labels
        && annotations(old).eq(annotations(new))
        && one.owner_references == other.owner_references
        && one.deletion_timestamp == other.deletion_timestamp
        && old.spec == new.spec
        && old.phase() == new.phase()
        && expiry(old) == expiry(new)
        && notice(old) == notice(new)
}

/// Without the annotation that changes with every operation.
fn annotations(machine: &Machine) -> impl Iterator<Item = (&String, &String)> {
    machine.metadata.annotations.iter().flatten().filter(|(key, _)| *key != OPERATION)
}

fn expiry(machine: &Machine) -> Option<&Time> {
    machine.status.as_ref()?.current_status.as_ref()?.preserve_expiry_time.as_ref()
}

fn notice(machine: &Machine) -> Option<&InstanceNotice> {
    machine.status.as_ref()?.instance_notice.as_ref()
}

fn failure(machine: &Machine) -> Option<&LastOperation> {
    let last = machine.status.as_ref()?.last_operation.as_ref()?;
    (last.state == Some(MachineState::Failed)).then_some(last)
}
