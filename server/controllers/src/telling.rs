//! Records events about an object, in the same vocabulary for every kind.

use k8s_openapi::api::core::v1::ObjectReference;
use ostler_lifecycle::plan::Event;

use crate::events::{EventRecord, Recorder, Severity};

/// Records an event about an object.
pub(crate) fn tell(recorder: &Recorder, regarding: ObjectReference, event: Event) {
    let Event { warning, reason, action, message: note, .. } = event;
    let severity = if warning { Severity::Warning } else { Severity::Normal };
    let (reason, action) = (reason.name(), action.name());
    recorder.record(EventRecord { regarding, severity, reason, action, note });
}
