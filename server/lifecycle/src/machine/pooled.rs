//! A Machine that is an instance of a group. Its pool made the instance and deletes it; everything between is as for any
//! Machine. A driver is asked nothing on behalf of this one: what the infrastructure says of its instance, the pool reads.

use ostler_api::{
    driver::OperationKind,
    machine::{InstanceState, WaitReason},
    names::annotation,
};

use super::{
    pass::Pass,
    transition::{Outcome, wait},
};
use crate::{
    pool::{awaits_its_end, is_told_gone},
    snapshot::{DriverView, Snapshot},
};

/// Whether the pool said that the instance is gone; or it went with its group before, and says nothing any more. A group
/// that is left all the same is an orphan.
pub(crate) fn is_gone(snap: &Snapshot) -> bool {
    let left_alone = snap.pool_gone && awaits_its_end(&snap.machine);
    snap.machine.has_pool() && (is_told_gone(&snap.machine) || left_alone)
}

/// Whether the infrastructure deletes the instance already: nothing is drained again for a Node that comes late.
pub(crate) fn is_going(pass: &Pass<'_>) -> bool {
    let said = pass.status.instance.as_ref().filter(|_| pass.machine.has_pool());
    said.is_some_and(|it| it.provisioning_state == InstanceState::Deleting)
}

/// Nothing is drained for an instance that no driver can delete alone, unless it goes all the same, or its whole group.
///
/// # Errors
/// The driver cannot.
pub(crate) fn hold(pass: &Pass<'_>) -> Outcome<()> {
    let DriverView::Ready(driver) = &pass.snap.driver else { return Ok(()) };
    let pool_goes =
        pass.snap.pool_gone || pass.machine.annotation(annotation::POOL_DELETED).is_some();
    let goes = pool_goes || is_going(pass);
    if goes || !pass.machine.has_pool() || driver.has(OperationKind::DeletePoolMachines) {
        return Ok(());
    }
    let text = "the driver cannot delete one instance of a group: this machine goes when its instance does";
    Err(wait(WaitReason::DriverLacksVerb, Some(text.to_owned()), None))
}

/// Everything is done before the instance goes: the pool sees that by the step, and deletes it.
///
/// # Errors
/// It is of a pool.
pub(crate) fn wait_for_pool(pass: &Pass<'_>) -> Outcome<()> {
    if !pass.machine.has_pool() {
        return Ok(());
    }
    let text = "the pool deletes the instance".to_owned();
    Err(wait(WaitReason::PoolDeletion, Some(text), None))
}
