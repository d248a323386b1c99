//! A Machine that is an instance of a group. Its pool made the instance and deletes it; everything between is as for
//! any Machine. No driver is asked on behalf of this Machine: the pool reads the infrastructure's state of the
//! instance. Only when the pool is gone, a driver is asked whether the group exists.

use std::time::Duration;

use jiff::SignedDuration;
use ostler_api::{
    driver::OperationKind,
    machine::{InstanceState, WaitReason},
    names::annotation,
};

use super::{
    pass::Pass,
    transition::{Outcome, Transition, wait},
};
use crate::{
    pool::{SEEN_TWICE, has_drained, is_marked_gone},
    snapshot::{DriverView, OwnPool, Snapshot},
    time::after,
};

/// When to ask again whether the group of a pool that is gone is there.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// How long a group may not be found that was made just now.
const SETTLED: SignedDuration = SignedDuration::from_mins(1);

const SILENT: &str = "the pool has not said yet how far the instance is";

/// Whether the pool said that the instance is gone; or it went with its group before, and says nothing any more.
pub(crate) fn is_gone(snap: &Snapshot) -> bool {
    let no_group = matches!(snap.pool, OwnPool::Gone(looks) if looks >= SEEN_TWICE);
    let went_before = no_group && has_drained(&snap.machine);
    snap.machine.has_pool() && (is_marked_gone(&snap.machine) || went_before)
}

/// Whether a driver is to be asked for the group of a pool that is gone, on whose instance nothing else waits. A group that
/// was made just now may not be found yet.
pub fn asks_for_group(snap: &Snapshot) -> bool {
    let deleted = snap.machine.metadata.deletion_timestamp.as_ref();
    let settled = deleted.is_some_and(|at| snap.now.duration_since(at.0) >= SETTLED);
    snap.pool.is_gone() && settled && has_drained(&snap.machine)
}

/// Whether the infrastructure deletes the instance already: nothing is drained again for a Node that comes late.
pub(crate) fn is_going(pass: &Pass<'_>) -> bool {
    let said = pass.status.instance.as_ref().filter(|_| pass.machine.has_pool());
    said.is_some_and(|it| it.provisioning_state == InstanceState::Deleting)
}

/// Why an instance of a group does not run as far as is known, by what its pool reads. The pool is not read any more
/// once it is gone.
pub(crate) fn not_running(pass: &Pass<'_>) -> Option<String> {
    use InstanceState::{Canceled, Creating, Failed};
    if !pass.machine.has_pool() || pass.snap.pool.is_gone() {
        return None;
    }
    match pass.status.instance.as_ref().map(|it| &it.provisioning_state) {
        None => Some(SILENT.to_owned()),
        Some(state @ (Creating | Failed | Canceled)) => {
            Some(format!("the driver says that the instance is {state}"))
        }
        Some(_) => None,
    }
}

/// Whether the pool will still say whether it has the instance.
pub(crate) fn is_unsaid(pass: &Pass<'_>) -> bool {
    let silent = pass.machine.has_pool() && pass.status.instance.is_none();
    silent && !pass.snap.pool.is_gone()
}

/// Nothing is done for a Machine before its pool confirms the instance.
pub(crate) fn wait_for_word() -> Transition {
    wait(WaitReason::InstanceNotReady, Some(SILENT.to_owned()), None)
}

/// Nothing is drained for an instance that no driver can delete alone, unless the instance goes all the same, or the
/// whole group does. Without a driver, the pool's status tells the abilities of the last driver.
///
/// # Errors
/// The driver cannot.
pub(crate) fn hold(pass: &Pass<'_>) -> Outcome<()> {
    let can = match &pass.snap.driver {
        DriverView::Ready(driver) => driver.has(OperationKind::DeletePoolMachines),
        DriverView::Unavailable | DriverView::NotReady(_) => pass.snap.pool != OwnPool::Whole,
    };
    let pool_goes =
        pass.snap.pool.is_gone() || pass.machine.annotation(annotation::POOL_DELETED).is_some();
    if can || pool_goes || is_going(pass) || !pass.machine.has_pool() {
        return Ok(());
    }
    let text = "the driver cannot delete one instance of a group: this machine goes when its instance does";
    Err(wait(WaitReason::DriverLacksVerb, Some(text.to_owned()), None))
}

/// Everything is done before the instance goes: the pool sees that by the step, and deletes it.
///
/// # Errors
/// The instance is of a pool.
pub(crate) fn wait_for_pool(pass: &Pass<'_>) -> Outcome<()> {
    if !pass.machine.has_pool() {
        return Ok(());
    }
    let (text, until) = match pass.snap.pool {
        OwnPool::There | OwnPool::Whole => ("the pool deletes the instance", None),
        OwnPool::Gone(_) => {
            let next = after(pass.snap.now, LOOK_AGAIN);
            ("its pool is gone: the orphan scan deletes the group, if there is one", Some(next))
        }
    };
    Err(wait(WaitReason::PoolDeletion, Some(text.to_owned()), until))
}
