//! Events for the controllers.

use ostler_api::OperationId;
use ostler_api::ProviderName;
use ostler_api::Uid;
use std::collections::BTreeSet;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::hint::Hint;
use ostler_api::operation::PoolTraits;

/// Something happened. A subscriber that lags gets no replay; it looks at [`crate::Sessions::providers`]
/// and [`crate::Sessions::targets`] instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// Operations for this provider are sent from now on.
    ProviderReady {
        /// The provider, by the name its driver uses.
        provider: ProviderName,
    },
    /// Operations for this provider are not sent any more, or still not and for another reason.
    ProviderGone {
        /// The provider, by the name its driver uses.
        provider: ProviderName,
    },
    /// A driver came back with an operation that this core did not know.
    Adopted {
        /// UID of the target.
        target_uid: Uid,
        /// The operation.
        operation_id: OperationId,
    },
    /// The operation of a target ended; [`crate::Sessions::view`] has its outcome.
    OutcomeReady {
        /// UID of the target.
        target_uid: Uid,
        /// The operation.
        operation_id: OperationId,
    },
    /// An operation that waited in the core for a while was sent.
    Sent {
        /// UID of the target.
        target_uid: Uid,
        /// The operation.
        operation_id: OperationId,
    },
    /// The driver has not said for long how far an operation is, or does so again.
    Stalled {
        /// UID of the target.
        target_uid: Uid,
        /// The operation.
        operation_id: OperationId,
        /// False: the operation goes on.
        stalled: bool,
    },
    /// The driver of an operation lost its session, or came back with the operation.
    Lost {
        /// UID of the target.
        target_uid: Uid,
        /// The operation.
        operation_id: OperationId,
        /// False: it came back, or never got the operation, which is sent again.
        lost: bool,
    },
    /// A running operation has a new checkpoint; [`crate::Sessions::view`] has it.
    Checkpoint {
        /// UID of the target.
        target_uid: Uid,
        /// The operation.
        operation_id: OperationId,
    },
    /// The driver says that something happened to an instance. The hint proves nothing.
    Hint {
        /// The provider, by the name its driver uses.
        provider: ProviderName,
        /// The content of the hint.
        hint: Box<Hint>,
    },
    /// A driver claimed a provider without the right.
    ForeignProvider {
        /// The claiming principal.
        principal: String,
        /// The claimed provider.
        provider: ProviderName,
        /// The allowed providers, for people.
        serves: String,
    },
}

impl SessionEvent {
    /// The provider whose operations are sent from now on, or are not any more.
    pub fn turned(&self) -> Option<&ProviderName> {
        match self {
            Self::ProviderReady { provider } | Self::ProviderGone { provider } => Some(provider),
            Self::Adopted { .. }
            | Self::OutcomeReady { .. }
            | Self::Sent { .. }
            | Self::Stalled { .. }
            | Self::Lost { .. }
            | Self::Checkpoint { .. }
            | Self::Hint { .. }
            | Self::ForeignProvider { .. } => None,
        }
    }
}

/// The driver of a provider, as seen from here. `Default` has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderState {
    /// The name its driver uses.
    pub provider: ProviderName,
    /// Whether operations are sent: a session is active and ready.
    pub ready: bool,
    /// The driver's reason for its readiness, for people; may be empty.
    pub reason: String,
    /// Live sessions, active or standby.
    pub sessions: usize,
    /// Name of the principal of the active session; empty without one.
    pub principal: String,
    /// Instance id of the active session; empty without one.
    pub instance_id: String,
    /// Instance name of the active session, for people.
    pub instance_name: String,
    /// Name and version of the active session's driver, for people.
    pub driver: String,
    /// Verbs of the active session.
    pub kinds: BTreeSet<OperationKind>,
    /// Whether the driver knows instances by name only, and cannot tell their makers.
    pub by_name: bool,
    /// For how long the infrastructure may not show a new instance; `None`: no lag.
    pub list_lag: Option<Duration>,
    /// The groups' own behaviour.
    pub pools: PoolTraits,
    /// Operations sent and not answered, over all sessions.
    pub in_flight: usize,
    /// Operations that wait for credit.
    pub queued: usize,
    /// How long the oldest operation that no pause holds back has waited.
    pub oldest_wait: Duration,
    /// The driver is slow: an operation waits longer for its credit than it should.
    pub slow: bool,
    /// The infrastructure throttles: no create is sent for so long.
    pub paused: Option<Duration>,
    /// By how many milliseconds the clock of the active session's driver is ahead of ours; `None`
    /// if it does not say what time it has.
    pub clock_ahead: Option<i64>,
}
