//! Deletion begins: stop what is being done, and find out which instance and which Node there are.

use ostler_api::{
    driver::OperationKind,
    machine::{DeletionCause, DrainPurpose, MachinePhase, MachineState, MachineStep, WaitReason},
};

use super::{
    State, abandoning,
    draining::{self, emptying},
    hooks::{self, Hook},
    pass::{Pass, Turn},
    preconditions,
    reading::Reading,
    retry,
    standing::Standing,
    takeover::{self, Upstream},
    token,
};
use crate::{
    operation::OperationView,
    plan::{EventReason, Next},
    snapshot::NodeView,
};

/// Writes down that the Machine is being deleted. What is left of its creation does not hold the
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
    let step = takeover::step(pass).unwrap_or(MachineStep::FindInstance);
    pass.machine_phase(&MachinePhase::Terminating);
    pass.step(Some(step));
    retry::clear(pass);
    pass.status.hot_update = None;
    // A drain for something else proves nothing: pods may have come since.
    for purpose in [DrainPurpose::Preservation, DrainPurpose::InPlaceUpdate] {
        emptying::forget(pass, &purpose);
    }
    token::delete(pass);
    let (state, text) = (MachineState::Processing, "the machine is being deleted");
    takeover::describe(pass, state, text, Upstream::FindNode, None);
}

const fn is_of_deletion(step: &MachineStep) -> bool {
    match step {
        MachineStep::FindInstance
        | MachineStep::PreDrainHook
        | MachineStep::CordonNode
        | MachineStep::DrainNode
        | MachineStep::DetachVolumes
        | MachineStep::PreTerminateHook
        | MachineStep::DeleteInstance
        | MachineStep::DeleteNode
        | MachineStep::RemoveFinalizer => true,
        MachineStep::CreateInstance
        | MachineStep::InitializeInstance
        | MachineStep::JoinNode
        | MachineStep::UpdateInstance
        | MachineStep::UpdateNode
        | MachineStep::Other(_) => false,
    }
}

pub(crate) fn plan(pass: &mut Pass<'_>) -> Turn {
    pass.step(Some(MachineStep::FindInstance));
    if pass.end.is_some() {
        return Turn::To(State::Finishing);
    }
    let standing = pass.standing();
    if standing == Standing::Working {
        cancel(pass);
        return pass.wait_for_driver();
    }
    if let Some(turn) = abandoning::plan(pass) {
        return turn;
    }
    if !pass.ever_asked() {
        return never_asked(pass);
    }
    let unresolved = standing == Standing::Unresolved;
    if !unresolved && pass.node().is_some() {
        return Turn::To(State::Draining);
    }
    match pass.reading.take() {
        // Found: the Node may have been looked for under a name that is known only now.
        Some(Reading::Found(_)) if !pass.patch.is_empty() => Turn::Rest(Next::OnChange),
        Some(
            Reading::Found(_) | Reading::Uninitialized | Reading::NotFound | Reading::CannotRead,
        ) => Turn::To(State::Draining),
        Some(Reading::Failed(failure)) => {
            retry::remember(pass, OperationKind::GetMachineStatus, &failure);
            retry::gate(pass).unwrap_or(Turn::Rest(Next::OnChange))
        }
        None if !unresolved && pass.machine.node_name().is_some() => Turn::To(State::Draining),
        None => look(pass),
    }
}

/// Stops what is not wanted any more. The driver says truthfully what became of it.
fn cancel(pass: &mut Pass<'_>) {
    let OperationView::InFlight(flight) = &pass.snap.operation else { return };
    let unwanted = flight.kind.is_mutation() && flight.kind != OperationKind::DeleteMachine;
    if unwanted && !flight.cancelled {
        pass.cancel = Some(flight.id.clone());
    }
}

/// Nothing was ever asked of a driver for this Machine. A driver that is there is asked all the
/// same; one that cannot be asked is no reason to keep the object for ever.
fn never_asked(pass: &mut Pass<'_>) -> Turn {
    match preconditions::check(pass.snap) {
        Ok(_) => Turn::To(State::Deleting),
        Err(lack) if matches!(lack.reason, WaitReason::NotObserved | WaitReason::CrdsOutdated) => {
            pass.lack(lack)
        }
        Err(lack) => {
            if let Some(turn) = hooks::hold(pass, Hook::PreTerminate) {
                return turn;
            }
            pass.event(false, EventReason::InstanceNeverRequested, lack.reason.to_string());
            Turn::To(State::Finishing)
        }
    }
}

fn look(pass: &mut Pass<'_>) -> Turn {
    let (class, driver) = match preconditions::check(pass.snap) {
        Ok(both) => both,
        Err(lack) => return pass.lack(lack),
    };
    if !driver.has(OperationKind::GetMachineStatus) {
        return Turn::To(State::Draining);
    }
    if let (NodeView::Unknown, false) = (&pass.snap.node, draining::is_unseen_for_good(pass)) {
        let lack = preconditions::unseen(pass.snap, "nodes");
        let until = draining::deadline(pass);
        return pass.wait(lack.reason, Some(lack.message), until);
    }
    retry::gate(pass).unwrap_or_else(|| pass.send_read(class))
}
