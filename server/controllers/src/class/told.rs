//! Events reported once per content.

use std::collections::HashMap;

use kube::Resource;
use ostler_lifecycle::plan::{Event, EventAction, EventReason};
use parking_lot::Mutex;

use crate::events::Recorder;
use crate::telling::tell;
use crate::watch::ObjectName;

/// Tells people of classes and secrets.
pub(super) struct Told {
    recorder: Recorder,
    /// The last event by object and reason: the broken rules of a class, or the UID of an object that cannot go.
    /// Bounded by the objects.
    last: Mutex<HashMap<(ObjectName, EventReason), String>>,
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
        reason: EventReason,
        what: Option<String>,
        note: impl FnOnce(&str) -> String,
    ) {
        let (Some(object), Some(what)) = (object, what) else { return self.over(name, reason) };
        let key = (name.clone(), reason);
        let note = match self.last.lock().insert(key, what.clone()) {
            Some(before) if before == what => return,
            Some(_) | None => note(&what),
        };
        let event = Event::warning(reason, note).doing(EventAction::Check);
        tell(&self.recorder, object.object_ref(&()), event);
    }

    /// There is nothing to say any more.
    pub(super) fn over(&self, name: &ObjectName, reason: EventReason) {
        self.last.lock().remove(&(name.clone(), reason));
    }
}
