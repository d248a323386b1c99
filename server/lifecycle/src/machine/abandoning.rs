//! An instance that the driver calls not ours and the operator abandons. Otherwise a Machine that may have an instance
//! goes only when its driver, or its pool, says that the instance is gone: `force-deletion` is no such way, for it is
//! set routinely and means a short drain.

use ostler_api::{
    Machine,
    machine::{MachineStatus, WaitReason},
    names,
};

use super::{
    State,
    pass::Pass,
    releasing,
    transition::{Outcome, Transition},
};

/// The instance that the driver called not ours, and that the annotation names: the Machine goes
/// without it.
pub fn named<'a>(machine: &'a Machine, status: &MachineStatus) -> Option<&'a str> {
    let not_ours = [WaitReason::InstanceNotOurs, WaitReason::ClusterIdChanged];
    let retry = status.retry.as_ref().filter(|retry| not_ours.contains(&retry.reason))?;
    let named = machine.annotation(names::annotation::ABANDON_INSTANCE)?;
    (!named.is_empty() && retry.provider_id.as_ref().is_some_and(|it| it == named)).then_some(named)
}

/// Ends the deletion if the operator abandoned this very instance. The Node stays with the instance.
pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome<()> {
    let Some(provider_id) = named(pass.machine, &pass.status) else { return Ok(()) };
    let provider_id = provider_id.to_owned();
    releasing::abandon(pass, provider_id);
    Err(Transition::To(State::Finishing))
}
