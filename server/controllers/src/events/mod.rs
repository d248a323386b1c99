//! Kubernetes events: what happened to an object, for people.
//!
//! Recording never waits and never fails: what does not fit is counted and dropped. The same
//! event again becomes a series of the first one.

mod series;
mod writer;

pub use writer::{EventMetrics, EventWriter, Recorder};

use k8s_openapi::api::core::v1::ObjectReference;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Worth to know.
    Normal,
    /// Worth a look.
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// The object it happened to.
    pub regarding: ObjectReference,
    /// How bad it is.
    pub severity: Severity,
    /// Why, as a word that does not change.
    pub reason: &'static str,
    /// What was done, as a word that does not change.
    pub action: &'static str,
    /// The same for people; cut after 1 KiB.
    pub note: String,
}
