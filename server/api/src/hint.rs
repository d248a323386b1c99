//! Drivers' unasked reports.

use crate::ProviderId;
use crate::Uid;
use std::time::Duration;

/// A past or coming event of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintKind {
    /// The instance is gone.
    Gone,
    /// The instance exists and has changed.
    Changed,
    /// The infrastructure will end it.
    Termination,
    /// The infrastructure will work on it.
    Maintenance,
    /// The announced event is over, or was called off.
    NoticeOver,
}

impl HintKind {
    /// The word in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "Gone",
            Self::Changed => "Changed",
            Self::Termination => "TerminationNotice",
            Self::Maintenance => "MaintenanceNotice",
            Self::NoticeOver => "NoticeOver",
        }
    }
}

/// A reason to look at an instance. A hint proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The kind of event.
    pub kind: HintKind,
    /// The instance; may be empty.
    pub provider_id: ProviderId,
    /// The cluster in the tags; may be empty.
    pub cluster_id: String,
    /// The UID in the tags; may be empty.
    pub machine_uid: Uid,
    /// In how much time the event happens, if known.
    pub effective_in: Option<Duration>,
    /// For people. No decision depends on the message.
    pub message: String,
}
