//! Events that are told once for each thing that they say.

use std::collections::HashMap;

use kube::Resource;
use parking_lot::Mutex;

use crate::events::{EventRecord, Recorder, Severity};
use crate::watch::ObjectName;

/// Tells people of classes and secrets.
pub(super) struct Told {
    recorder: Recorder,
    /// What an event said last, by object and reason: the rules that a class breaks, or the UID of what cannot go. Bounded by
    /// the objects.
    last: Mutex<HashMap<(ObjectName, &'static str), String>>,
}

impl Told {
    /// Nothing was told yet.
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, last: Mutex::default() }
    }

    /// Records an event about an object, once for each `what`; `None`: it is over.
    pub(super) fn report<K: Resource<DynamicType = ()>>(
        &self,
        (name, object): (&ObjectName, Option<&K>),
        reason: &'static str,
        what: Option<String>,
        note: impl FnOnce(&str) -> String,
    ) {
        let (Some(object), Some(what)) = (object, what) else { return self.over(name, reason) };
        let key = (name.clone(), reason);
        let note = match self.last.lock().insert(key, what.clone()) {
            Some(before) if before == what => return,
            Some(_) | None => note(&what),
        };
        self.recorder.record(EventRecord {
            regarding: object.object_ref(&()),
            severity: Severity::Warning,
            reason,
            action: "Check",
            note,
        });
    }

    /// There is nothing to say any more.
    pub(super) fn over(&self, name: &ObjectName, reason: &'static str) {
        self.last.lock().remove(&(name.clone(), reason));
    }
}
