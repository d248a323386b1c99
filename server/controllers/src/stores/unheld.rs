//! Classes whose finalizer could not be written, and why.

use parking_lot::Mutex;
use std::collections::HashMap;

use crate::watch::ObjectName;

/// What the class controller tells those who wait for it. Bounded by the classes: one that is gone or held is
/// forgotten.
#[derive(Debug, Default)]
pub(crate) struct Unheld(Mutex<HashMap<ObjectName, String>>);

impl Unheld {
    /// The last attempt failed for this reason; `None`: it went well, or there is nothing to hold.
    pub(crate) fn note(&self, class: &ObjectName, why: Option<String>) {
        let mut all = self.0.lock();
        match why {
            Some(why) => drop(all.insert(class.clone(), why)),
            None => drop(all.remove(class)),
        }
    }

    /// Why the class has no finalizer, if somebody tried to put it there.
    pub(crate) fn why(&self, class: &ObjectName) -> Option<String> {
        self.0.lock().get(class).cloned()
    }
}
