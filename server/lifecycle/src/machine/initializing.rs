//! The instance exists; the one-time work after its creation is not done yet.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{
        FailureReason, Machine, MachineConditionType, MachineOperationType, MachinePhase,
        MachineStatus, MachineStep,
    },
};

use super::{
    State, bootstrapping, conditions, instance, joining,
    last_operation::Activity,
    pass::Pass,
    preconditions,
    reading::Reading,
    retry::{self, RetryAction},
    token,
    transition::{Outcome, Transition, fail},
};
use crate::{
    operation::{Failure, InstanceRecord, Request},
    plan::EventReason,
};

const INITIALIZED: MachineConditionType = MachineConditionType::InstanceInitialized;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    pass.step(Some(MachineStep::InitializeInstance));
    token::keep_alive(pass);
    pass.unless_working()?;
    match pass.learned.reading.take() {
        Some(Reading::Found(record)) if record.initialized == Some(true) => {
            joining::enter(pass);
            return Ok(Transition::To(State::Joining));
        }
        Some(Reading::NotFound) => {
            pass.learned.reading = Some(Reading::NotFound);
            return Ok(Transition::To(State::Creating));
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
fn initialize(pass: &mut Pass<'_>, looked: bool) -> Outcome {
    let (class, driver) = match preconditions::check(pass.snap) {
        Ok(there) => there,
        Err(lack) if pass.creation_overdue() && !lack.is_no_fault() => return Ok(too_late()),
        Err(lack) => return Err(lack.into()),
    };
    let looks = pass.is_unresolved() && !looked && driver.has(OperationKind::GetMachineStatus);
    if !looks && !driver.has(OperationKind::InitializeMachine) {
        joining::enter(pass);
        return Ok(Transition::To(State::Joining));
    }
    if pass.creation_overdue() {
        return Ok(too_late());
    }
    retry::gate(pass)?;
    if looks {
        return Ok(pass.send_read(class));
    }
    let user_data = bootstrapping::user_data(pass)?;
    let provider_id = pass.provider_id().cloned().unwrap_or_default();
    Ok(pass.send(class, Request::Initialize { user_data, provider_id }))
}

fn too_late() -> Transition {
    let text = "the instance was not initialized within the creation timeout";
    fail(FailureReason::InitializationTimeout, MachineOperationType::Create, text)
}

/// Whether the instance, if there is one, was made for this Machine and never initialized. A driver
/// that knows nothing of initialization in its records is asked for it all the same: a later read
/// that succeeds proves nothing.
pub(crate) fn is_owed(pass: &Pass<'_>) -> bool {
    let status = &pass.status;
    let done = conditions::held_since(status, &INITIALIZED).is_some();
    let asked_for = instance::was_made(status) || status.creation_spec_digest.is_some();
    !done && (asked_for || is_shown_as_failed(status))
}

/// The instance is gone: its replacement is to be initialized anew.
pub(crate) fn forget(pass: &mut Pass<'_>) {
    conditions::remove(&mut pass.status, &INITIALIZED);
}

/// Whether an initialization was sent of which the status says nothing: the core died before it wrote that.
pub(crate) fn is_recorded(machine: &Machine) -> bool {
    let shown = machine.status.as_ref().is_some_and(|status| status.operation.is_some());
    let intent = machine.intent().filter(|_| !shown);
    intent.and_then(|it| it.operation_kind()) == Some(OperationKind::InitializeMachine)
}

/// Whether the last thing that was written is a failed initialization, by whichever controller.
pub(crate) fn is_shown_as_failed(status: &MachineStatus) -> bool {
    let last = status.last_operation.as_ref();
    let code = last.and_then(|last| last.error_code.as_deref()).and_then(ErrorCode::from_name);
    code == Some(ErrorCode::Uninitialized)
        && status.machine_phase() == MachinePhase::CrashLoopBackOff
}

/// The driver initialized the instance, or could not. The answer may describe the instance again.
pub(crate) fn answered(
    pass: &mut Pass<'_>,
    result: Result<Option<&InstanceRecord>, &Failure>,
    state: State,
) -> Transition {
    match result {
        Err(failure) => failed(pass, failure, state),
        Ok(Some(InstanceRecord { initialized: Some(false), .. })) if !pass.is_over() => {
            let text = "the driver reported success but the instance as not initialized";
            let failure = Failure::new(ErrorCode::Uninitialized, Certainty::NotApplied, text);
            pass.end_operation();
            failed(pass, &failure, state)
        }
        Ok(record) => {
            pass.end_operation();
            if pass.is_over() {
                return Transition::To(state);
            }
            instance::confirm(pass);
            // The instance of another Machine does not become this Machine's by its initialization.
            let shared = pass.snap.provider_id_holder.is_some();
            instance::forget_power(pass);
            if let Some(record) = record.filter(|it| !it.provider_id.is_empty() && !shared) {
                instance::learn(pass, record);
            }
            retry::clear(pass);
            conditions::set(pass, &INITIALIZED, true, "Initialized", "");
            joining::enter(pass);
            Transition::To(State::Joining)
        }
    }
}

fn failed(pass: &mut Pass<'_>, failure: &Failure, state: State) -> Transition {
    let rule = retry::remember_mutation(pass, OperationKind::InitializeMachine, failure);
    if pass.is_over() {
        return Transition::To(state);
    }
    if rule.then == RetryAction::Accept {
        joining::enter(pass);
        return Transition::To(State::Joining);
    }
    if let RetryAction::GiveUp(reason) = rule.then {
        return fail(reason, MachineOperationType::Create, failure.text());
    }
    show_failure(pass, failure);
    if matches!(rule.then, RetryAction::LookAgain { .. }) {
        // The lookup by identity finds the instance again, or makes it.
        pass.end_operation();
        pass.step(Some(MachineStep::CreateInstance));
        return Transition::To(State::Creating);
    }
    Transition::To(State::Initializing)
}

/// Shows a failed initialization, in the words known to upstream's consumers.
fn show_failure(pass: &mut Pass<'_>, failure: &Failure) {
    let (code, text) = (failure.code.name(), failure.text());
    conditions::set(pass, &INITIALIZED, false, code, &text);
    pass.show(Activity::InitializeFailed);
    pass.machine_phase(&MachinePhase::CrashLoopBackOff);
    pass.effects.event(true, EventReason::InstanceInitializeFailed, format!("{code}: {text}"));
}
