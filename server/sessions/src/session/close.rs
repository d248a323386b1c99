//! Why the core ends a session.

use ostler_proto::v1alpha1::ProtocolError;
use tonic::{Code, Status};

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
    /// `seq` of the frame at fault, if one was.
    pub(crate) seq: u64,
    /// Whether frames that were not written yet are thrown away.
    pub(crate) discard: bool,
}

impl Close {
    fn new(reason: &'static str, code: Code, retry: bool, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), code, retry, seq: 0, discard: false }
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
        let message = "the first frame must be Hello and must come at once";
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
        let message = format!("{missed} operations in a row were not accepted in time");
        Self::new("NOT_ACCEPTING", Code::Unavailable, true, message)
    }

    /// A frame of the driver could not be read.
    pub(crate) fn unreadable(status: &Status) -> Self {
        let message = format!("a frame could not be read: {}", status.message());
        Self::violation("UNREADABLE_FRAME", message)
    }

    /// Somebody asked for it on the admin listener.
    pub(crate) fn by_hand(reason: &str) -> Self {
        let message = match reason {
            "" => "an operator ended the session; connect again".to_owned(),
            reason => format!("an operator ended the session: {reason}"),
        };
        Self::new("CLOSED_BY_OPERATOR", Code::Unavailable, true, message)
    }

    /// This core stops.
    pub(crate) fn core_stopping() -> Self {
        Self::new("CORE_STOPPING", Code::Unavailable, true, "this core stops; connect again")
    }

    /// The same, with the frame that is at fault.
    pub(crate) fn at(self, seq: u64) -> Self {
        Self { seq, ..self }
    }

    /// The last frame.
    pub(crate) fn frame(&self) -> ProtocolError {
        ProtocolError {
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            offending_seq: self.seq,
            retry: self.retry,
        }
    }

    /// The status of the stream.
    pub(crate) fn status(&self) -> Status {
        Status::new(self.code, format!("{}: {}", self.reason, self.message))
    }
}
