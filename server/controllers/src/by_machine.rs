//! A controller's values for each machine between passes. Safe to lose: a restart begins with nothing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::stores::MachineIndex;
use crate::watch::Cache;

/// Below so many values, memory for more is not given back.
const FEW: usize = 1024;

/// A value for each machine, by its UID. Bounded by the existing machines: the watch reports deleted machines, and
/// nothing is kept of a machine that went while a pass waited for an answer.
///
/// Values are large, and many machines have none: a table of them would take up to 400 MiB for 100,000 machines, for good after
/// they all began at the same time.
#[derive(Debug)]
pub(crate) struct ByMachine<T> {
    values: Mutex<HashMap<String, Box<T>>>,
    machines: Arc<Cache<MachineIndex>>,
}

impl<T: Clone> ByMachine<T> {
    /// Values of the given machines.
    pub(crate) fn of(machines: &Arc<Cache<MachineIndex>>) -> Self {
        Self { values: Mutex::default(), machines: Arc::clone(machines) }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<T> {
        self.values.lock().get(uid).map(|value| value.as_ref().clone())
    }

    pub(crate) fn set(&self, uid: &str, value: T) {
        let mut values = self.values.lock();
        // Looked at under the lock: if it goes now, `remove` comes after this.
        if self.machines.count(MachineIndex::Uid, uid) > 0 {
            values.insert(uid.to_owned(), Box::new(value));
        }
    }

    pub(crate) fn remove(&self, uid: &str) {
        let mut values = self.values.lock();
        values.remove(uid);
        if values.capacity() > FEW.max(8 * values.len()) {
            let kept = FEW.max(2 * values.len());
            values.shrink_to(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::bench::put;

    #[test]
    fn nothing_is_kept_of_a_machine_that_went_while_a_pass_waited() {
        let cache = Arc::new(Cache::default());
        let values = ByMachine::of(&cache);
        let machine = json!({ "metadata": { "name": "m", "uid": "u" }, "spec": {} });
        put(&cache, machine.clone());
        values.set("u", 1);
        assert_eq!(values.get("u"), Some(1));
        cache.apply(Event::Delete(serde_json::from_value(machine).unwrap()));
        values.remove("u");
        values.set("u", 2);
        assert_eq!(values.get("u"), None);
    }
}
