//! Classes whose finalizer could not be written, and why.

use parking_lot::Mutex;
use std::collections::HashMap;

use crate::watch::ObjectName;

/// Reasons for the machines that wait for the class controller. Bounded by the classes: a deleted class, or a class
/// with its finalizer, is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Unheld(Mutex<HashMap<ObjectName, String>>);

impl Unheld {
    /// Stores why the last attempt failed; `None`: it succeeded, or the class needs no finalizer.
    pub(crate) fn note(&self, class: &ObjectName, why: Option<String>) {
        let mut all = self.0.lock();
        match why {
            Some(why) => drop(all.insert(class.clone(), why)),
            None => drop(all.remove(class)),
        }
    }

    /// Why the class has no finalizer, if the class controller tried to add it.
    pub(crate) fn why(&self, class: &ObjectName) -> Option<String> {
        self.0.lock().get(class).cloned()
    }
}
