//! A Machine that is an instance of a group. Its pool made the instance and deletes it; everything between is as for any
//! Machine. A driver is asked nothing on behalf of this one: what the infrastructure says of its instance, the pool reads.

use ostler_api::{driver::OperationKind, machine::WaitReason};

use super::{
    State, creating, instance, joining,
    pass::Pass,
    preconditions,
    transition::{Outcome, Transition, wait},
};
use crate::{pool::is_told_gone, snapshot::DriverView};

/// The instance is there already: its Node is awaited.
///
/// # Errors
/// It is of a pool.
pub(crate) fn join(pass: &mut Pass<'_>) -> Outcome<()> {
    if !pass.machine.has_pool() {
        return Ok(());
    }
    if pass.provider_id().is_none() {
        let text = "spec.providerID is empty, and the pool made this machine for an instance";
        return Err(wait(WaitReason::InstanceMissing, Some(text.to_owned()), None));
    }
    preconditions::target(pass.snap)?;
    creating::start_creation(pass);
    instance::set_adopted(pass);
    instance::set_default_priority(pass);
    joining::enter(pass);
    Err(Transition::To(State::Joining))
}

/// Whether the pool said that the instance is gone.
pub(crate) fn is_gone(pass: &Pass<'_>) -> bool {
    pass.machine.has_pool() && is_told_gone(pass.machine)
}

/// Nothing is drained for an instance that no driver can delete alone.
///
/// # Errors
/// The driver cannot.
pub(crate) fn hold(pass: &Pass<'_>) -> Outcome<()> {
    let DriverView::Ready(driver) = &pass.snap.driver else { return Ok(()) };
    if !pass.machine.has_pool() || driver.has(OperationKind::DeletePoolMachines) {
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
