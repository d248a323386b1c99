//! An operation on its way to a driver, and why it is not accepted.

use ostler_api::{OperationId, ProviderName, Revision};
use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::{Failure, Lane, Reason};
use ostler_proto::v1alpha1::Operation;

use crate::ClassContent;

/// An operation to be sent, with its looked-up data.
#[derive(Debug)]
pub(crate) struct Order {
    /// The id of `operation`.
    pub(crate) id: OperationId,
    /// The verb.
    pub(crate) kind: OperationKind,
    /// `MachineClass.provider`, or the name that drivers use.
    pub(crate) provider: ProviderName,
    /// For the driver, from receipt.
    pub(crate) timeout: Duration,
    /// The priority.
    pub(crate) lane: Lane,
    /// The request, without fields known only to the hub.
    pub(crate) operation: Box<Operation>,
    /// Names of the volumes whose ids are asked for.
    pub(crate) volumes: Vec<String>,
    /// The class at its revision, kept until the operation ends.
    pub(crate) class: Option<Arc<ClassContent>>,
    /// The current secret of the class, if known.
    pub(crate) secret: Option<Revision>,
}

/// Why an operation was not accepted. Nothing was sent; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No ready driver of this provider is connected; wait for
    /// [`crate::SessionEvent::ProviderReady`].
    #[error("no ready driver of provider {provider:?} is connected")]
    NoDriver {
        /// The provider.
        provider: ProviderName,
    },
    /// The target has an operation that is in flight or not acknowledged.
    #[error("operation {operation_id} of this target has not ended; acknowledge its result first")]
    TargetBusy {
        /// The other operation.
        operation_id: OperationId,
    },
    /// Too much waits for this provider already; try again later.
    #[error("too many operations wait for provider {provider:?}")]
    QueueFull {
        /// The provider.
        provider: ProviderName,
    },
    /// The operation is too large for a frame; it will not get smaller by waiting.
    #[error("{part} has {bytes} bytes, the limit is {limit}; make it smaller")]
    FrameTooLarge {
        /// The part that is too large.
        part: FramePart,
        /// The size of the part.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The core only looks.
    #[error("this core only looks, and sends no {kind}")]
    LooksOnly {
        /// The verb.
        kind: OperationKind,
    },
    /// The driver has no such verb.
    #[error("the driver of provider {provider:?} does not support {kind}")]
    KindUnsupported {
        /// The provider.
        provider: ProviderName,
        /// The verb.
        kind: OperationKind,
    },
}

impl SubmitError {
    /// The failure equivalent to this refusal.
    pub fn failure(&self) -> Failure {
        let (code, reason) = match self {
            Self::NoDriver { .. } => (ErrorCode::Unavailable, Reason::CoreNoSession),
            Self::TargetBusy { .. } => (ErrorCode::Aborted, Reason::CoreTargetBusy),
            Self::QueueFull { .. } => (ErrorCode::Unavailable, Reason::CoreQueueFull),
            Self::FrameTooLarge { .. } => (ErrorCode::InvalidArgument, Reason::CoreFrameTooLarge),
            Self::KindUnsupported { .. } => (ErrorCode::Unimplemented, Reason::CoreKindUnsupported),
            Self::LooksOnly { .. } => (ErrorCode::FailedPrecondition, Reason::CoreLooksOnly),
        };
        Failure::by_core(code, reason, &self.to_string(), Certainty::NotApplied)
    }
}

/// The part of an operation that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FramePart {
    /// The user data of a machine.
    UserData,
    /// A provider spec: the class's, the last applied one, or a spec to validate.
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
