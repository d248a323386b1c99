//! The wish of a state: to go on in another state, or to end the pass with a wait or a request. The
//! result is a value; the walk applies it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::machine::{FailureReason, MachineOperationType, OperationIntent, WaitReason};

use super::State;
use crate::{
    operation::Dispatch,
    plan::{EventReason, Next},
};

/// The wish of a state.
#[derive(Debug)]
pub(crate) enum Transition {
    /// To go on in another state, in the same pass.
    To(State),
    /// To end the pass.
    Rest(Next),
    /// To end the pass, and to say in the status what for.
    Wait(Wait),
    /// To send a mutation, which is written down before.
    Send(Box<Dispatch>, Box<OperationIntent>),
    /// To send a read. A read changes nothing, so nothing is written before.
    Read(Box<Dispatch>),
    /// To give the Machine up.
    Fail {
        /// Why.
        reason: FailureReason,
        /// The failed operation.
        type_: MachineOperationType,
        /// The same for people.
        description: String,
    },
}

/// The result of a part of a state. `Err`: the state ends here, with this transition.
pub(crate) type Outcome<T = Transition> = Result<T, Transition>;

/// A wait.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) reason: WaitReason,
    pub(crate) message: Option<String>,
    /// When to look again even if nothing changes.
    pub(crate) until: Option<Timestamp>,
    /// The event to record when the wait begins.
    pub(crate) event: Option<EventReason>,
    /// Since when it lasts, if that is longer than the status says.
    pub(crate) since: Option<Time>,
}

impl Transition {
    /// As a wait that may need a person to end it: an event says so when it begins.
    pub(crate) fn with_event(mut self, event: EventReason) -> Self {
        if let Self::Wait(wait) = &mut self {
            wait.event = Some(event);
        }
        self
    }

    /// Like a wait interrupted by attempts to end it.
    pub(crate) fn lasting_since(mut self, since: Option<Time>) -> Self {
        if let Self::Wait(wait) = &mut self {
            wait.since = since;
        }
        self
    }
}

/// A wait. `until`: when to look again even if nothing changes.
pub(crate) const fn wait(
    reason: WaitReason,
    message: Option<String>,
    until: Option<Timestamp>,
) -> Transition {
    Transition::Wait(Wait { reason, message, until, event: None, since: None })
}

/// The end of the creation, or of the life, of the Machine.
pub(crate) fn fail(
    reason: FailureReason,
    type_: MachineOperationType,
    description: impl Into<String>,
) -> Transition {
    Transition::Fail { reason, type_, description: description.into() }
}
