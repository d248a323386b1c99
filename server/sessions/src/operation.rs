//! What the controllers hand in, and what they get back.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_proto::v1alpha1::{FieldViolation, ObjectRevision, Target, operation, operation_result};

/// One operation for a driver.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// `MachineClass.provider`; aliases are resolved here.
    pub provider: String,
    /// UUID, new for every decision to dispatch.
    pub operation_id: String,
    /// At most 64 ASCII characters; the same for every retry of the same intent.
    pub idempotency_key: String,
    /// What it is about; `target.uid` is what [`crate::Sessions::view`] takes.
    pub target: Target,
    /// The class; its revision is kept for the driver until the operation ends.
    pub class: Option<ObjectRevision>,
    /// The verb and its arguments.
    pub request: operation::Request,
    /// For the driver, from receipt; waiting for credit is bounded by the same time and does not
    /// count.
    pub timeout: Duration,
    /// What the driver last reported for this target, at most 4 KiB.
    pub checkpoint: String,
    /// The instance may be found by the name of the machine.
    pub adopt_by_name: bool,
    /// Who waits for it.
    pub lane: Lane,
}

impl Dispatch {
    /// The verb.
    pub fn kind(&self) -> OperationKind {
        kind_of(&self.request)
    }
}

/// Who waits for an operation. Within a lane reads go before mutations and deletes before creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Lane {
    /// A change that somebody made.
    #[default]
    User,
    /// Resync, orphan collection, health.
    Background,
}

/// Why an operation was not accepted. Nothing was sent; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No ready driver of this provider is connected; wait for
    /// [`crate::SessionEvent::ProviderReady`].
    #[error("no ready driver of provider {provider:?} is connected")]
    NoDriver {
        /// The provider.
        provider: String,
    },
    /// The target has an operation that is in flight or not acknowledged.
    #[error("operation {operation_id} of this target has not ended; acknowledge its result first")]
    TargetBusy {
        /// That operation.
        operation_id: String,
    },
    /// Too much waits for this provider already; try again later.
    #[error("too many operations wait for provider {provider:?}")]
    QueueFull {
        /// The provider.
        provider: String,
    },
    /// The operation is too large for a frame; it will not get smaller by waiting.
    #[error("{part} has {bytes} bytes, the limit is {limit}; make it smaller")]
    FrameTooLarge {
        /// What is too large.
        part: FramePart,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// This core only looks.
    #[error("this core only looks, and sends no {kind}")]
    LooksOnly {
        /// The verb.
        kind: OperationKind,
    },
    /// The driver has no such verb.
    #[error("the driver of provider {provider:?} does not support {kind}")]
    KindUnsupported {
        /// The provider.
        provider: String,
        /// The verb.
        kind: OperationKind,
    },
}

impl SubmitError {
    /// The failure that this refusal amounts to.
    pub fn failure(&self) -> OperationFailure {
        let (code, reason) = match self {
            Self::NoDriver { .. } => (ErrorCode::Unavailable, reasons::NO_SESSION),
            Self::TargetBusy { .. } => (ErrorCode::Aborted, reasons::TARGET_BUSY),
            Self::QueueFull { .. } => (ErrorCode::Unavailable, reasons::QUEUE_FULL),
            Self::FrameTooLarge { .. } => (ErrorCode::InvalidArgument, reasons::FRAME_TOO_LARGE),
            Self::KindUnsupported { .. } => (ErrorCode::Unimplemented, reasons::KIND_UNSUPPORTED),
            Self::LooksOnly { .. } => (ErrorCode::FailedPrecondition, reasons::LOOKS_ONLY),
        };
        OperationFailure::by_core(code, reason, self.to_string(), Certainty::NotApplied)
    }
}

/// The part of an operation that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FramePart {
    /// The user data of a machine.
    UserData,
    /// A provider spec: that of the class, the last applied one, or one to validate.
    ProviderSpec,
    /// The checkpoint.
    Checkpoint,
    /// All but user data and provider specs.
    Rest,
    /// The whole frame.
    Frame,
}

impl std::fmt::Display for FramePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UserData => "the user data",
            Self::ProviderSpec => "the provider spec",
            Self::Checkpoint => "the checkpoint",
            Self::Rest => "the operation without user data and provider spec",
            Self::Frame => "the operation",
        })
    }
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The driver did it.
    Result(operation_result::Response),
    /// It failed, or nobody knows.
    Error(OperationFailure),
}

/// Why an operation failed, and what it left behind.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationFailure {
    /// What went wrong.
    pub code: ErrorCode,
    /// Stable UPPER_SNAKE word. `CORE_*` was made here ([`reasons`]), all else by the driver.
    pub reason: String,
    /// For people; at most 2 KiB.
    pub message: String,
    /// What a mutation left behind.
    pub certainty: Certainty,
    /// Do not try again before.
    pub retry_after: Option<Duration>,
    /// Wrong fields of the provider spec.
    pub violations: Vec<FieldViolation>,
    /// The infrastructure's own code, verbatim.
    pub provider_code: String,
    /// The infrastructure's own request id, verbatim.
    pub provider_request_id: String,
    /// With `NOT_OURS`: the instance that is there and is not the machine's.
    pub provider_id: String,
    /// With `NOT_OURS`: the cluster id in the tags of that instance; empty if it has none.
    pub cluster_id: String,
}

impl OperationFailure {
    /// The sessions are gone, and the operation with them.
    pub(crate) fn unanswered() -> Self {
        let message = "the core stops";
        Self::by_core(ErrorCode::Unavailable, reasons::NO_SESSION, message, Certainty::Unknown)
    }

    /// A failure that the core itself speaks of.
    pub fn by_core(
        code: ErrorCode,
        reason: &str,
        message: impl Into<String>,
        certainty: Certainty,
    ) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            certainty,
            retry_after: None,
            violations: Vec::new(),
            provider_code: String::new(),
            provider_request_id: String::new(),
            provider_id: String::new(),
            cluster_id: String::new(),
        }
    }
}

/// The reasons that the core gives in [`OperationFailure::reason`].
pub mod reasons {
    /// No ready driver is connected.
    pub const NO_SESSION: &str = "CORE_NO_SESSION";
    /// The session ended while the operation was in flight.
    pub const SESSION_LOST: &str = "CORE_SESSION_LOST";
    /// The driver did not answer in time, or the operation waited too long for credit.
    pub const TIMEOUT: &str = "CORE_TIMEOUT";
    /// The driver did not accept the operation in time.
    pub const ACCEPT_TIMEOUT: &str = "CORE_ACCEPT_TIMEOUT";
    /// The driver accepted the operation and does not know it any more.
    pub const OPERATION_LOST: &str = "CORE_OPERATION_LOST";
    /// Too much waits for the provider.
    pub const QUEUE_FULL: &str = "CORE_QUEUE_FULL";
    /// The operation is too large.
    pub const FRAME_TOO_LARGE: &str = "CORE_FRAME_TOO_LARGE";
    /// The target has another operation.
    pub const TARGET_BUSY: &str = "CORE_TARGET_BUSY";
    /// The driver has no such verb.
    pub const KIND_UNSUPPORTED: &str = "CORE_KIND_UNSUPPORTED";
    /// This core changes nothing.
    pub const LOOKS_ONLY: &str = "CORE_LOOKS_ONLY";
    /// Cancelled before it was sent.
    pub const CANCELED: &str = "CORE_CANCELED";
    /// The driver answered with something that does not fit the request.
    pub const WRONG_RESULT: &str = "CORE_WRONG_RESULT";
    /// A list was longer than the core holds.
    pub const LIST_TOO_LONG: &str = "CORE_LIST_TOO_LONG";
}

/// What is known of the operation of one target.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetView {
    /// None.
    Idle,
    /// One is queued or in flight.
    InFlight(InFlight),
    /// One ended and waits for [`crate::Sessions::acknowledge`].
    Finished(Finished),
}

/// An operation that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct InFlight {
    /// Its id.
    pub operation_id: String,
    /// Whose driver has it or is to get it, by the name that drivers use.
    pub provider: String,
    /// Its verb.
    pub kind: OperationKind,
    /// Its intent.
    pub idempotency_key: String,
    /// Time since it was submitted or adopted.
    pub age: Duration,
    /// What the driver last said of it.
    pub progress: Option<Progress>,
    /// The driver has not said anything of it for too long.
    pub stalled: bool,
}

/// What a driver said of a running operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Stable word, e.g. `ImagePull`.
    pub stage: String,
    /// For people.
    pub message: String,
    /// 0 to 100.
    pub percent: u32,
    /// Opaque; handed back on a retry.
    pub checkpoint: String,
}

/// An operation that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Its id.
    pub operation_id: String,
    /// Whose driver it was sent to, by the name that drivers use.
    pub provider: String,
    /// Its verb.
    pub kind: OperationKind,
    /// Its intent.
    pub idempotency_key: String,
    /// How it ended.
    pub outcome: Arc<Outcome>,
    /// What to hand to the driver with the next operation of this target.
    pub checkpoint: String,
}

/// The verb of a request.
pub(crate) fn kind_of(request: &operation::Request) -> OperationKind {
    use operation::Request;
    match request {
        Request::CreateMachine(_) => OperationKind::CreateMachine,
        Request::InitializeMachine(_) => OperationKind::InitializeMachine,
        Request::UpdateMachine(_) => OperationKind::UpdateMachine,
        Request::DeleteMachine(_) => OperationKind::DeleteMachine,
        Request::GetMachineStatus(_) => OperationKind::GetMachineStatus,
        Request::ListMachines(_) => OperationKind::ListMachines,
        Request::GetVolumeIds(_) => OperationKind::GetVolumeIds,
        Request::ValidateClass(_) => OperationKind::ValidateClass,
    }
}
