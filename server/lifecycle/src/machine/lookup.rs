//! The answer to a read of the instance. The answer resolves an intent of unknown outcome; the
//! state that asked decides about the Machine.

use ostler_api::{driver::OperationKind, machine::OperationIntent};

use super::{
    State, absence, adoption, creating, instance, joining,
    pass::Pass,
    reading::Reading,
    retry::{self, RetryAction},
    transition::Transition,
};
use crate::operation::{Failure, InstanceRecord};

/// Keeps the driver's answer for the state that goes on with it.
pub(crate) fn answered(
    pass: &mut Pass<'_>,
    result: Result<&InstanceRecord, &Failure>,
    state: State,
) -> Transition {
    let reading = match result {
        Ok(record) => Reading::Found(record.clone()),
        Err(failure) => of_failure(failure),
    };
    let next = match &reading {
        Reading::Failed(_) => state,
        Reading::Found(record) => {
            let intent = pass.end_operation();
            found(pass, record, intent, state)
        }
        Reading::Uninitialized | Reading::NotFound | Reading::CannotRead => {
            let intent = pass.end_operation();
            if !matches!(reading, Reading::Uninitialized) {
                absence::lose_intent(pass, intent.as_ref());
            }
            let creates = matches!(state, State::Creating | State::Joining);
            if creates && matches!(reading, Reading::Uninitialized) {
                creating::start_creation(pass);
                State::Initializing
            } else {
                state
            }
        }
    };
    pass.learned.reading = Some(reading);
    Transition::To(next)
}

fn of_failure(failure: &Failure) -> Reading {
    let then = retry::rule_for(OperationKind::GetMachineStatus, failure).then;
    if then == RetryAction::Absent {
        Reading::NotFound
    } else if then == RetryAction::NotInitialized {
        Reading::Uninitialized
    } else if then == RetryAction::GoOn {
        Reading::CannotRead
    } else {
        Reading::Failed(failure.clone())
    }
}

fn found(
    pass: &mut Pass<'_>,
    record: &InstanceRecord,
    intent: Option<OperationIntent>,
    state: State,
) -> State {
    let was_create = intent
        .as_ref()
        .is_some_and(|intent| intent.operation_kind() == Some(OperationKind::CreateMachine));
    let known = adoption::was_known(intent.as_ref(), record);
    if !instance::adopt(pass, record, intent) {
        return state;
    }
    if adoption::is_needed(pass, record) {
        let creation = matches!(state, State::Creating | State::Initializing | State::Joining);
        return if creation { State::Creating } else { state };
    }
    adoption::record_identity(pass);
    if state == State::Creating {
        if !known {
            creating::tell_if_made(pass, record, was_create);
        }
        creating::found(pass, record, was_create)
    } else if state == State::Joining {
        joining::found(record)
    } else {
        state
    }
}
