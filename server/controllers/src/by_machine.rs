//! What a controller keeps for each machine between passes. Safe to lose: a restart begins with nothing.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Below so many values, what was made for more is not given back.
const FEW: usize = 1024;

/// A value for each machine, by its UID. Bounded by the machines that exist: the watch reports those that are gone.
///
/// Values are large, and many machines have none: a table of them would take up to 400 MiB for 100,000 machines, for good after
/// they all began at the same time.
#[derive(Debug)]
pub(crate) struct ByMachine<T>(Mutex<HashMap<String, Box<T>>>);

impl<T> Default for ByMachine<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> ByMachine<T> {
    pub(crate) fn get(&self, uid: &str) -> Option<T> {
        self.0.lock().get(uid).map(|value| value.as_ref().clone())
    }

    pub(crate) fn set(&self, uid: &str, value: T) {
        self.0.lock().insert(uid.to_owned(), Box::new(value));
    }

    pub(crate) fn remove(&self, uid: &str) {
        let mut values = self.0.lock();
        values.remove(uid);
        if values.capacity() > FEW.max(8 * values.len()) {
            let kept = FEW.max(2 * values.len());
            values.shrink_to(kept);
        }
    }
}
