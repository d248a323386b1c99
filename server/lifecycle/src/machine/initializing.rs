//! The instance exists; what is to be done once after that is not done yet.

use ostler_api::{
    driver::{ErrorCode, OperationKind},
    machine::{
        FailureReason, MachineConditionType, MachineOperationType, MachinePhase, MachineState,
        MachineStatus, MachineStep,
    },
};

use super::{
    State, adoption, conditions, joining,
    pass::{Pass, Reading, Turn},
    preconditions, retry,
    standing::Standing,
    token,
};
use crate::{
    operation::{Failure, Request},
    plan::EventReason,
};

/// What `lastOperation.description` says, word for word, while initialization fails: other programs
/// look for it.
pub(crate) const DESCRIPTION: &str = "InstanceInitialization";

pub(crate) fn plan(pass: &mut Pass<'_>) -> Turn {
    pass.step(Some(MachineStep::InitializeInstance));
    token::keep_alive(pass);
    if pass.standing() == Standing::Working {
        return pass.wait_for_driver();
    }
    match pass.reading.take() {
        Some(Reading::Found(record)) if record.initialized == Some(true) => {
            joining::enter(pass);
            return Turn::To(State::Joining);
        }
        Some(Reading::NotFound) => {
            pass.reading = Some(Reading::NotFound);
            return Turn::To(State::Creating);
        }
        Some(Reading::Failed(failure)) => {
            retry::remember(pass, OperationKind::GetMachineStatus, &failure);
        }
        None => {}
        Some(Reading::Found(_) | Reading::Uninitialized | Reading::CannotRead) => {
            return initialize(pass, true);
        }
    }
    initialize(pass, false)
}

/// `looked`: a read of this pass said that the instance is there and not initialized.
fn initialize(pass: &mut Pass<'_>, looked: bool) -> Turn {
    let (class, driver) = match preconditions::check(pass.snap) {
        Ok(both) => both,
        Err(lack) => return pass.lack(lack),
    };
    if !driver.has(OperationKind::InitializeMachine) {
        joining::enter(pass);
        return Turn::To(State::Joining);
    }
    if pass.creation_overdue() {
        let text = "the instance was not initialized within the creation timeout";
        let reason = FailureReason::InitializationTimeout;
        return pass.fail(reason, MachineOperationType::Create, text);
    }
    if let Some(turn) = retry::gate(pass) {
        return turn;
    }
    let unresolved = pass.standing() == Standing::Unresolved;
    if unresolved && !looked && driver.has(OperationKind::GetMachineStatus) {
        return pass.send_read(class);
    }
    let provider_id = pass.provider_id().unwrap_or_default().to_owned();
    pass.send(class, Request::Initialize { provider_id })
}

/// Whether the instance, if there is one, was made for this Machine and never initialized. A driver
/// that knows nothing of initialization in its records is asked for it all the same: a later read
/// that succeeds proves nothing.
pub(crate) fn is_owed(pass: &Pass<'_>) -> bool {
    let status = &pass.status;
    let done = conditions::held_since(status, &MachineConditionType::InstanceInitialized).is_some();
    let asked_for = adoption::was_made(pass) || status.creation_spec_digest.is_some();
    !done && (asked_for || is_shown_as_failed(status))
}

/// Whether the last thing that was written is a failed initialization, by whichever controller.
pub(crate) fn is_shown_as_failed(status: &MachineStatus) -> bool {
    let last = status.last_operation.as_ref();
    let code = last.and_then(|last| last.error_code.as_deref()).and_then(ErrorCode::from_name);
    code == Some(ErrorCode::Uninitialized)
        && status.machine_phase() == MachinePhase::CrashLoopBackOff
}

/// Shows that initialization failed, in the words that upstream's consumers know.
pub(crate) fn failed(pass: &mut Pass<'_>, failure: &Failure) {
    let (now, text) = (pass.now(), failure.text());
    let code = failure.code.name();
    let type_ = MachineConditionType::InstanceInitialized;
    conditions::set(&mut pass.status, &now, &type_, false, code, &text);
    pass.last_operation(
        MachineOperationType::Create,
        MachineState::Failed,
        DESCRIPTION,
        Some(ErrorCode::Uninitialized.name()),
    );
    pass.machine_phase(&MachinePhase::CrashLoopBackOff);
    pass.event(true, EventReason::InstanceInitializeFailed, format!("{code}: {text}"));
}
