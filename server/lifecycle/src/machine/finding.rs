//! Deletion begins: stop the current operation, and find the instance and the Node.

use ostler_api::{
    driver::OperationKind,
    machine::{DeletionCause, DrainPurpose, MachinePhase, MachineStep, WaitReason},
};

use super::{
    State, abandoning, bootstrapping,
    draining::{self, drain},
    hooks, instance,
    last_operation::Activity,
    pass::Pass,
    pooled, preconditions,
    reading::Reading,
    releasing, retry,
    takeover::{self, Upstream},
    token,
    transition::{Outcome, Transition},
    updating,
};
use crate::{
    operation::OperationView,
    plan::{EventReason, Next},
};

/// Writes down that the Machine is being deleted. The remains of its creation do not hold the
/// deletion up.
pub(crate) fn begin(pass: &mut Pass<'_>) {
    if pass.status.machine_phase() == MachinePhase::Terminating
        && pass.status.step.as_ref().is_some_and(is_of_deletion)
    {
        return;
    }
    if pass.status.deletion_cause.is_none() {
        let failed = pass.status.machine_phase() == MachinePhase::Failed
            || pass.status.failure_reason.is_some();
        let cause = if failed { DeletionCause::Unhealthy } else { DeletionCause::ScaleDown };
        pass.status.deletion_cause = Some(cause);
    }
    if pass.status.machine_phase() != MachinePhase::Terminating {
        releasing::forget(pass);
    }
    let step = takeover::step_to_resume(pass).unwrap_or(MachineStep::FindInstance);
    pass.machine_phase(&MachinePhase::Terminating);
    pass.step(Some(step));
    retry::clear(pass);
    updating::forget(pass);
    // A drain for something else proves nothing: pods may have come since.
    for purpose in [DrainPurpose::Preservation, DrainPurpose::InPlaceUpdate] {
        drain::forget(pass, &purpose);
    }
    token::delete(pass);
    pass.show(Activity::Delete("the machine is being deleted", Upstream::FindNode));
}

const fn is_of_deletion(step: &MachineStep) -> bool {
    use MachineStep as Step;
    matches!(
        step,
        Step::FindInstance
            | Step::PreDrainHook
            | Step::CordonNode
            | Step::DrainNode
            | Step::DetachVolumes
            | Step::PreTerminateHook
            | Step::DeleteInstance
            | Step::DeleteNode
            | Step::RemoveFinalizer
    )
}

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    pass.step(Some(MachineStep::FindInstance));
    if pass.learned.release.is_some() {
        return Ok(Transition::To(State::Finishing));
    }
    if pass.is_working() {
        cancel(pass);
        return Ok(pass.wait_for_driver());
    }
    abandoning::plan(pass)?;
    if !pass.ever_asked() {
        return never_asked(pass);
    }
    let unresolved = pass.is_unresolved() || pass.has_other_id();
    if !unresolved && !pass.nodes().is_empty() {
        return Ok(Transition::To(State::Draining));
    }
    let reading = pass.learned.reading.take();
    let is_there =
        matches!(reading, Some(Reading::Found(_) | Reading::Uninitialized | Reading::CannotRead));
    if is_there && pass.has_node_by_spec_only() {
        instance::confirm(pass);
        instance::set_adopted(pass);
    }
    Ok(match reading {
        // Found: the Node may have been looked for under a name that is known only now.
        Some(Reading::Found(_)) if !pass.effects.patch.is_empty() => {
            Transition::Rest(Next::OnChange)
        }
        Some(
            Reading::Found(_) | Reading::Uninitialized | Reading::NotFound | Reading::CannotRead,
        ) => Transition::To(State::Draining),
        Some(Reading::Failed(failure)) => retry::after_read(pass, &failure),
        None if !unresolved
            && pass.machine.node_name().is_some()
            && !pass.has_node_by_spec_only() =>
        {
            Transition::To(State::Draining)
        }
        None if pass.has_node_by_spec_only() && pooled::is_unsaid(pass) => {
            return Err(pooled::wait_for_word());
        }
        None => return read_instance(pass),
    })
}

/// Cancels an operation that is no longer wanted. The driver's answer tells how the operation
/// ended.
fn cancel(pass: &mut Pass<'_>) {
    let OperationView::InFlight(flight) = &pass.snap.operation else { return };
    let unwanted = flight.kind.is_mutation() && flight.kind != OperationKind::DeleteMachine;
    if unwanted && !flight.cancelled {
        pass.effects.cancel = Some(flight.id.clone());
    }
}

/// Nothing was ever asked of a driver for this Machine. An available driver is asked all the same;
/// a driver that cannot be asked is no reason to keep the object for ever.
fn never_asked(pass: &mut Pass<'_>) -> Outcome {
    match preconditions::check(pass.snap) {
        Ok(_) => Ok(Transition::To(State::Deleting)),
        Err(lack) if matches!(lack.reason, WaitReason::NotObserved | WaitReason::CrdsOutdated) => {
            Err(lack.into())
        }
        Err(lack) => {
            hooks::hold(pass, hooks::PRE_TERMINATE)?;
            if let Some(wait) = bootstrapping::delete_copy(pass) {
                return Err(wait.until(None));
            }
            pass.effects.event(false, EventReason::InstanceNeverRequested, lack.reason.to_string());
            Ok(Transition::To(State::Finishing))
        }
    }
}

fn read_instance(pass: &mut Pass<'_>) -> Outcome {
    let (class, driver) = preconditions::check(pass.snap)?;
    if !driver.has(OperationKind::GetMachineStatus) {
        return Ok(Transition::To(State::Draining));
    }
    draining::unless_unseen(pass)?;
    retry::gate(pass)?;
    Ok(pass.send_read(class))
}
