//! What is counted of each identity.

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
    /// Bytes of bodies until the request is done.
    BodyBytes,
    /// Bytes of answers that are not read.
    AnswerBytes,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Connection,
        Self::Read,
        Self::Write,
        Self::Watch,
        Self::Heartbeat,
        Self::BodyBytes,
        Self::AnswerBytes,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Read => "read",
            Self::Write => "write",
            Self::Watch => "watch",
            Self::Heartbeat => "heartbeat",
            Self::BodyBytes => "body_bytes",
            Self::AnswerBytes => "answer_bytes",
        }
    }
}
