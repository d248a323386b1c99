//! Kubernetes events: what happened to an object, for people.
//!
//! Recording never waits and never fails: events beyond the capacity are counted and dropped. A repeated event
//! becomes a series.
//!
//! Kept by hand: kube's `Recorder` awaits each request in the caller, reads the clock of the machine, adds an event to the
//! series of one with another note (whose text people then read), and has no limit of what one object may record.

mod series;
mod writer;

pub(crate) use writer::{EventMetrics, EventWriter, Recorder};

use k8s_openapi::api::core::v1::ObjectReference;

/// Target of diagnostics that only repeat an event, so that a program that shows events can leave them out.
pub const EVENT_LOG: &str = "ostler_controllers::events";

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Severity {
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
pub(crate) struct EventRecord {
    /// The object that the event is about.
    pub(crate) regarding: ObjectReference,
    /// Its severity.
    pub(crate) severity: Severity,
    /// Why: a fixed identifier.
    pub(crate) reason: &'static str,
    /// What was done: a fixed identifier.
    pub(crate) action: &'static str,
    /// The message for people; cut after 1 KiB.
    pub(crate) note: String,
}
