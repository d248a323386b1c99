//! An operation, wherever it is.

use ostler_api::OperationId;
use ostler_api::ProviderName;
use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::{Failure, Lane, Outcome, Progress, Reason};
use ostler_proto::v1alpha1::{Operation, Target, operation_result};
use ostler_trace::TraceContext;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::pages::Pages;
use super::queue::Ticket;
use super::{LostKey, SessionKey};
use crate::{ClassContent, audit};

/// A driver's answer, or the reason for its absence.
pub(crate) type Answer = Result<operation_result::Response, Failure>;

/// The receiver of the outcome.
#[derive(Debug)]
pub(crate) enum Owner {
    /// The target's view, until it is acknowledged.
    Target,
    /// A waiting caller.
    Caller(oneshot::Sender<Box<Answer>>),
    /// Nothing: the target is gone.
    Gone,
}

/// Where an operation is.
#[derive(Debug)]
pub(crate) enum Place {
    /// Waits for credit.
    Queued(Ticket),
    /// With a driver.
    Sent(SessionKey),
    /// With a driver that is lost and may come back.
    Away(LostKey),
    /// Ended; waits for its acknowledgement.
    Finished {
        outcome: Box<Outcome>,
        checkpoint: String,
        /// Instance id of the driver that keeps the result.
        holder: Option<String>,
    },
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) kind: OperationKind,
    pub(crate) provider: ProviderName,
    pub(crate) volumes: Vec<String>,
    /// Keeps the revision of the class while a driver may ask for it.
    pub(crate) pinned: Option<Arc<ClassContent>>,
    pub(crate) since: Instant,
    /// When the operation entered the queue, or went to its driver.
    pub(crate) placed: Instant,
    pub(crate) timeout: Duration,
    /// When the operation times out, or its stay in the queue or among the results does.
    pub(crate) ends: Instant,
    /// When the driver must have accepted the operation; `None`: accepted, or not sent.
    pub(crate) accept_by: Option<Instant>,
    pub(crate) lane: Lane,
    pub(crate) owner: Owner,
    pub(crate) place: Place,
    /// The request. Once the driver accepted the operation, only the part that describes it.
    pub(crate) request: Box<Operation>,
    pub(crate) bytes: usize,
    pub(crate) pages: Pages,
    pub(crate) progress: Option<Progress>,
    /// How often the driver was asked to say how far it is.
    pub(crate) interval: Option<Duration>,
    /// Nothing was heard of the operation for too many intervals.
    pub(crate) stalled: bool,
    /// The checkpoint that the controllers got last, and when.
    pub(crate) reported: Option<(Instant, String)>,
    pub(crate) cancelled: bool,
    /// How often the time for its acceptance ran out since it was sent last.
    pub(crate) missed: u32,
}

impl Op {
    /// A failure of this operation that only the core can know of; `certainty` only
    /// matters where something may have changed.
    pub(crate) fn failure(
        &self,
        code: ErrorCode,
        reason: Reason,
        message: &str,
        certainty: Certainty,
    ) -> Answer {
        let certainty = if self.kind.is_mutation() { certainty } else { Certainty::NotApplied };
        Err(Failure::by_core(code, reason, message, certainty))
    }

    /// Writes down that a mutation was sent, to the driver with the principal `to`, or that it ended.
    pub(crate) fn audit(&self, id: &OperationId, to: Option<&str>, outcome: &str) {
        if self.kind.is_mutation() {
            tracing::info!(
                target: audit::TARGET,
                who = audit::CORE,
                verb = self.kind.name(),
                object = audit::object(self.target()),
                uid = self.target().uid,
                provider = self.provider.as_str(),
                operation = id.as_str(),
                trace = self.trace_id(),
                to,
                delivery = to.map(|_| self.request.delivery),
                outcome
            );
        }
    }

    /// The trace of the operation, if spans are wanted.
    fn trace_id(&self) -> Option<String> {
        let context: Option<TraceContext> = self.request.traceparent.parse().ok();
        context.map(|context| context.trace_id())
    }

    /// When to act on the operation, if nothing is heard.
    pub(crate) fn due(&self) -> Instant {
        self.accept_by.map_or(self.ends, |accept_by| accept_by.min(self.ends))
    }

    /// Whether a caller waits for the outcome, and for nothing else meanwhile.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.owner, Owner::Caller(_))
    }

    /// The target of the operation.
    pub(crate) fn target(&self) -> &Target {
        static NONE: Target = Target {
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
        };
        self.request.target.as_ref().unwrap_or(&NONE)
    }

    /// The operation is over: a waiting caller gets the outcome.
    pub(crate) fn answer(self: Box<Self>, answer: Box<Answer>) {
        if let Owner::Caller(caller) = self.owner {
            // The caller may have gone away.
            drop(caller.send(answer));
        }
    }

    /// Bytes of the operation that the driver may not have read.
    pub(crate) fn unread(&self) -> usize {
        if self.accepted() { 0 } else { self.bytes }
    }

    /// Whether the driver accepted the operation.
    pub(crate) fn accepted(&self) -> bool {
        self.request.request.is_none()
    }

    /// The driver has it: what only the driver needs is not kept here.
    pub(crate) fn accept(&mut self) {
        self.request.request = None;
        self.request.machine = None;
        self.request.checkpoint = String::new();
    }
}
