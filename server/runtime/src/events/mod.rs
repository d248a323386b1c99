//! Kubernetes events: what happened to an object, for people.
//!
//! Recording never waits and never fails: events beyond the capacity are counted and dropped. A repeated event
//! becomes a series.
//!
//! Kept by hand: kube's `Recorder` awaits each request in the caller, reads the clock of the machine, adds an event to
//! the series of an event with another note (whose text people then read), and has no limit of an object's events.

mod series;
mod writer;

pub use writer::{EventMetrics, EventWriter, Recorder};

use k8s_openapi::api::core::v1::ObjectReference;

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// Needs attention.
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
    /// The object that the event is about.
    pub regarding: ObjectReference,
    /// The severity.
    pub severity: Severity,
    /// Why: a fixed identifier.
    pub reason: &'static str,
    /// The action: a fixed identifier.
    pub action: &'static str,
    /// The message for people; cut after 1 KiB.
    pub note: String,
}
