//! Machines that sets took from a reserve and that were deleted before the reserve counted them.

use std::collections::{BTreeSet, HashMap};

use ostler_api::{Machine, MachineReserve};
use ostler_lifecycle::reserve::is_given;
use parking_lot::Mutex;

/// Names by UID of the reserve: no more than its status has. Existing Machines are counted by their own metadata; the
/// status drops a name in the write that counts it, so each Machine counts once, whichever process remembers it. A
/// finalizer would keep the Machine until then, even where no process removes finalizers any more.
#[derive(Debug, Default)]
pub(crate) struct Given(Mutex<HashMap<String, BTreeSet<String>>>);

impl Given {
    /// The Machine, in its last version, is gone. Returns whether the reserve counts it.
    pub(super) fn gone(&self, machine: &Machine, from: &MachineReserve) -> bool {
        let counts = is_named(from, machine.name()) && is_given(machine, from);
        if counts {
            let mut all = self.0.lock();
            all.entry(from.uid().to_owned()).or_default().insert(machine.name().to_owned());
        }
        counts
    }

    /// How many Machines named in the status are gone for a set.
    pub(super) fn count(&self, from: &MachineReserve) -> usize {
        let mut all = self.0.lock();
        let Some(names) = all.get_mut(from.uid()) else { return 0 };
        names.retain(|name| is_named(from, name));
        names.len()
    }

    pub(super) fn forget(&self, reserve: &str) {
        self.0.lock().remove(reserve);
    }
}

fn is_named(reserve: &MachineReserve, name: &str) -> bool {
    reserve.status.iter().flat_map(|it| &it.machines).any(|it| it == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_is_gone_counts_until_the_status_does_not_name_it_any_more() {
        let machine = |name: &str, labels: serde_json::Value| -> Machine {
            let meta = json!({ "name": name, "labels": labels });
            let spec = json!({ "class": { "kind": "MachineClass", "name": "c" } });
            serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
        };
        let reserve = |names: &[&str]| -> MachineReserve {
            let target = json!({ "kind": "MachineSet", "name": "s" });
            serde_json::from_value(json!({
                "metadata": { "name": "r", "uid": "r" },
                "spec": { "targetRef": target, "replicas": 1 }, "status": { "machines": names }
            }))
            .unwrap()
        };
        let (given, named) = (Given::default(), reserve(&["taken", "kept"]));
        assert!(given.gone(&machine("taken", json!({})), &named));
        assert!(!given.gone(&machine("kept", json!({ "ostler.dev/reserve": "r" })), &named));
        assert!(!given.gone(&machine("never", json!({})), &named));
        assert_eq!((given.count(&named), given.count(&named)), (1, 1), "the write may fail");
        assert_eq!(given.count(&reserve(&["kept"])), 0);
    }
}
