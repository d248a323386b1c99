//! What a controller keeps for each machine between passes. Safe to lose: a restart begins with nothing.

use std::collections::HashMap;

use parking_lot::Mutex;

/// A value for each machine, by its UID. Bounded by the machines that exist: the watch reports those that are gone.
#[derive(Debug)]
pub(crate) struct ByMachine<T>(Mutex<HashMap<String, T>>);

impl<T> Default for ByMachine<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> ByMachine<T> {
    pub(crate) fn get(&self, uid: &str) -> Option<T> {
        self.0.lock().get(uid).cloned()
    }

    pub(crate) fn set(&self, uid: &str, value: T) {
        self.0.lock().insert(uid.to_owned(), value);
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}
