//! The kinds of counted amounts.

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Connections that showed valid credentials.
    Connection,
    /// Reading requests until their answers are read.
    Read,
    /// Writing requests until their answers are read.
    Write,
    /// Watches.
    Watch,
    /// Heartbeats of a node until their answers are read.
    Heartbeat,
    /// Bytes of requests until they are done.
    RequestBytes,
    /// Bytes of answers that are not read.
    AnswerBytes,
    /// Bytes of what answers are still to be written of.
    UnwrittenBytes,
    /// Bytes of what watches keep for as long as they go on.
    WatchBytes,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Connection,
        Self::Read,
        Self::Write,
        Self::Watch,
        Self::Heartbeat,
        Self::RequestBytes,
        Self::AnswerBytes,
        Self::UnwrittenBytes,
        Self::WatchBytes,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Read => "read",
            Self::Write => "write",
            Self::Watch => "watch",
            Self::Heartbeat => "heartbeat",
            Self::RequestBytes => "request_bytes",
            Self::AnswerBytes => "answer_bytes",
            Self::UnwrittenBytes => "unwritten_bytes",
            Self::WatchBytes => "watch_bytes",
        }
    }
}
