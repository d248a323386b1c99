//! Why the core ends a session.

use std::collections::HashMap;
use std::time::Duration;

use ostler_proto::v1alpha1::ProtocolError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// In whose name the reasons of statuses are.
pub(crate) const DOMAIN: &str = "ostler.dev";

/// Why the core ends a session: the last frame and the status of the stream are made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Close {
    /// Stable UPPER_SNAKE word.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// Status of the stream.
    pub(crate) code: Code,
    /// Whether the driver may come back soon.
    pub(crate) retry: bool,
    /// Whether frames that were not written yet are thrown away.
    pub(crate) discard: bool,
    /// When to dial again at the earliest, if the driver was not even taken.
    pub(crate) retry_after: Option<Duration>,
}

impl Close {
    fn new(reason: &'static str, code: Code, retry: bool, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), code, retry, discard: false, retry_after: None }
    }

    /// The driver broke the protocol; it will again, so it is told to wait for minutes.
    pub(crate) fn violation(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(reason, Code::FailedPrecondition, false, message)
    }

    /// The principal may not do that.
    pub(crate) fn denied(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(reason, Code::PermissionDenied, false, message)
    }

    /// Too many sessions.
    pub(crate) fn crowded(message: impl Into<String>) -> Self {
        Self::new("TOO_MANY_SESSIONS", Code::ResourceExhausted, true, message)
    }

    /// No Hello in time.
    pub(crate) fn hello_timeout() -> Self {
        let message = "the first frame must be Hello and must come immediately";
        Self::new("HELLO_TIMEOUT", Code::DeadlineExceeded, true, message)
    }

    /// The same process of the driver came back on another stream.
    pub(crate) fn superseded() -> Self {
        let message = "another stream of the same instance took over";
        Self::new("SUPERSEDED", Code::Aborted, true, message)
    }

    /// Heartbeats were not answered.
    pub(crate) fn heartbeat_lost(missed: u32) -> Self {
        let message = format!("{missed} heartbeats were not answered");
        Self { discard: true, ..Self::new("HEARTBEAT_LOST", Code::Unavailable, true, message) }
    }

    /// The driver leaves frames unread.
    pub(crate) fn not_reading() -> Self {
        let message = "the driver does not read its stream";
        Self { discard: true, ..Self::new("NOT_READING", Code::Unavailable, true, message) }
    }

    /// The driver reads operations but accepts none.
    pub(crate) fn not_accepting(missed: u32) -> Self {
        let message = format!("{missed} times an operation was not accepted in time");
        Self::new("NOT_ACCEPTING", Code::Unavailable, true, message)
    }

    /// A frame of the driver could not be read. Only an excessive length makes a frame out of
    /// range.
    pub(crate) fn unreadable(status: &Status) -> Self {
        let message = format!("a frame could not be read: {}", status.message());
        let too_large = status.code() == Code::OutOfRange;
        Self::violation(if too_large { "FRAME_TOO_LARGE" } else { "UNREADABLE_FRAME" }, message)
    }

    /// A request on the admin listener asked for it.
    pub(crate) fn by_hand(reason: &str) -> Self {
        let message = match reason {
            "" => "an operator ended the session; connect again".to_owned(),
            reason => format!("an operator ended the session: {reason}"),
        };
        Self::new("CLOSED_BY_OPERATOR", Code::Unavailable, true, message)
    }

    /// The core stops.
    pub(crate) fn core_stopping() -> Self {
        Self::new("CORE_STOPPING", Code::Unavailable, true, "this core stops; connect again")
    }

    /// Another core leads, and takes the drivers.
    pub(crate) fn not_leader() -> Self {
        let message = "this core does not lead; connect again to reach the one that does";
        Self::new("NOT_LEADER", Code::Unavailable, true, message)
    }

    /// The driver would take instances of a previous cluster id for another cluster's.
    pub(crate) fn unknown_cluster_ids() -> Self {
        let message = "this core has previous cluster ids, and this driver does not know them: every machine would be made a second time; update the driver, or start the core without --previous-cluster-ids once all instances are adopted";
        Self::violation("UNKNOWN_CLUSTER_IDS", message)
    }

    /// Too many drivers have not sent Hello yet.
    pub(crate) fn too_many_arrivals() -> Self {
        let message = "too many drivers dial in at the same time; connect again later";
        let retry_after = Some(Duration::from_secs(1));
        Self { retry_after, ..Self::new("TOO_MANY_ARRIVALS", Code::Unavailable, true, message) }
    }

    /// The principal dials in too often.
    pub(crate) fn too_many_connects(wait: Duration) -> Self {
        let message = "this principal dials in too often; connect again later";
        let retry_after = Some(wait);
        Self { retry_after, ..Self::new("TOO_MANY_CONNECTS", Code::Unavailable, true, message) }
    }

    /// The time that a drain was given is over.
    pub(crate) fn drained() -> Self {
        Self::new("DRAINED", Code::Unavailable, true, "the time to drain is over; connect again")
    }

    /// The last frame.
    pub(crate) fn frame(&self) -> ProtocolError {
        ProtocolError {
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            retry: self.retry,
        }
    }

    /// The status of the stream.
    pub(crate) fn status(&self) -> Status {
        let mut details = ErrorDetails::with_error_info(self.reason, DOMAIN, HashMap::new());
        if let Some(delay) = self.retry_after {
            details.set_retry_info(Some(delay));
        }
        Status::with_error_details(self.code, format!("{}: {}", self.reason, self.message), details)
    }
}
