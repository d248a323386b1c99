//! The update slots of all classes. Only the leader assigns any, so counting in memory is enough.

use std::collections::HashMap;

use ostler_api::Machine;
use ostler_api::driver::OperationKind;
use ostler_api::machine::OperationIntent;
use ostler_lifecycle::hot_update::{SlotUse, SlotView, Slots};
use parking_lot::Mutex;

use crate::watch::ObjectName;

/// Bounded by the machines that exist: each is in one class, and is removed when it is gone.
#[derive(Debug, Default)]
pub(crate) struct UpdateSlots(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    classes: HashMap<ObjectName, Slots>,
    /// The class in which a machine has a slot or waits for one, by the machine's UID.
    class_of: HashMap<String, ObjectName>,
}

impl UpdateSlots {
    /// The previous core began the update of this machine, which keeps its slot, whatever the limit.
    pub(crate) fn take_over(&self, machine: &Machine) {
        let intent = machine.status.as_ref().and_then(|status| status.operation.as_ref());
        let kind = intent.and_then(OperationIntent::operation_kind);
        if kind == Some(OperationKind::UpdateMachine) {
            self.0.lock().slots(machine.uid(), &class_of(machine)).hold(machine.uid());
        }
    }

    /// The slot state of a machine under this limit.
    pub(crate) fn view(&self, machine: &Machine, limit: usize) -> SlotView {
        let (contents, class) = (self.0.lock(), class_of(machine));
        let empty = Slots::default();
        let slots = contents.classes.get(&class).unwrap_or(&empty);
        let mut view = slots.view(machine.uid(), limit);
        if contents.class_of.get(machine.uid()).is_some_and(|other| *other != class) {
            view.has = SlotUse::OfOtherClass;
        }
        view
    }

    /// Gives a machine a slot, or with `waits` a position in the queue. False: all slots under the limit are taken.
    /// Without a limit the machine always gets its slot.
    pub(crate) fn take(&self, machine: &Machine, waits: bool, limit: Option<usize>) -> bool {
        let (uid, class) = (machine.uid(), class_of(machine));
        let mut contents = self.0.lock();
        let slots = contents.slots(uid, &class);
        match limit {
            _ if waits => slots.wait(uid, limit.unwrap_or_default()),
            None => slots.hold(uid),
            Some(limit) => return slots.take(uid, limit),
        }
        true
    }

    /// Returns a slot or leaves the queue; returns the UIDs of machines that may take a slot now.
    pub(crate) fn leave(&self, uid: &str) -> Vec<String> {
        self.0.lock().leave(uid)
    }

    /// The machines in an update, and the machines waiting for a slot.
    pub(crate) fn count(&self) -> (usize, usize) {
        let contents = self.0.lock();
        let all = contents.classes.values();
        all.fold((0, 0), |sum, one| (sum.0 + one.holding(), sum.1 + one.waiting()))
    }
}

impl Contents {
    /// The slots of a class. Removes the machine from the slots of any other class.
    fn slots(&mut self, uid: &str, class: &ObjectName) -> &mut Slots {
        if self.class_of.get(uid).is_some_and(|old| old != class) {
            self.leave(uid);
        }
        self.class_of.insert(uid.to_owned(), class.clone());
        self.classes.entry(class.clone()).or_default()
    }

    fn leave(&mut self, uid: &str) -> Vec<String> {
        let Some(class) = self.class_of.remove(uid) else { return Vec::new() };
        let Some(slots) = self.classes.get_mut(&class) else { return Vec::new() };
        slots.leave(uid);
        let next = slots.next();
        if slots.is_empty() {
            self.classes.remove(&class);
        }
        next
    }
}

fn class_of(machine: &Machine) -> ObjectName {
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    ObjectName::new(namespace, &machine.spec.class.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(uid: &str, class: &str, operation: Option<&str>) -> Machine {
        let operation = operation.map(|kind| {
            json!({ "id": "1", "kind": kind, "idempotencyKey": "k", "term": 1, "attempt": 1 })
        });
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": uid, "namespace": "default", "uid": uid },
            "spec": { "class": { "kind": "MachineClass", "name": class } },
            "status": { "operation": operation }
        }))
        .unwrap()
    }

    impl UpdateSlots {
        /// Takes a slot under the limit, or else a position in the queue.
        fn ask(&self, machine: &Machine, limit: usize) -> bool {
            let granted = self.take(machine, false, Some(limit));
            if !granted {
                self.take(machine, true, Some(limit));
            }
            granted
        }
    }

    #[test]
    fn updates_of_the_previous_core_keep_their_slots() {
        let slots = UpdateSlots::default();
        slots.take_over(&machine("a", "c", Some("UpdateMachine")));
        slots.take_over(&machine("b", "c", Some("CreateMachine")));
        slots.take_over(&machine("d", "c", None));
        assert_eq!(slots.count(), (1, 0));
        let full = SlotView { has: SlotUse::None, ahead: 0, free: 0, limit: 1 };
        assert_eq!(slots.view(&machine("b", "c", None), 1), full);
        assert!(!slots.ask(&machine("b", "c", None), 1));
        assert_eq!(slots.leave("a"), ["b"]);
    }

    #[test]
    fn classes_do_not_share_their_slots() {
        let slots = UpdateSlots::default();
        assert!(slots.ask(&machine("a", "c", None), 1));
        assert!(slots.ask(&machine("b", "d", None), 1));
    }

    #[test]
    fn of_two_machines_that_saw_the_same_free_slot_one_gets_it() {
        let slots = UpdateSlots::default();
        let (a, b) = (machine("a", "c", None), machine("b", "c", None));
        assert!(slots.view(&a, 1).is_granted() && slots.view(&b, 1).is_granted());
        assert!(slots.take(&a, false, Some(1)));
        assert!(!slots.take(&b, false, Some(1)), "its plan is outdated");
        assert!(!slots.view(&b, 1).is_granted());
    }

    #[test]
    fn a_machine_that_changes_class_leaves_the_other_one() {
        let slots = UpdateSlots::default();
        slots.ask(&machine("a", "c", None), 1);
        assert_eq!(slots.view(&machine("a", "d", None), 1).has, SlotUse::OfOtherClass);
        slots.ask(&machine("a", "d", None), 1);
        assert_eq!(slots.count(), (1, 0));
        assert!(slots.ask(&machine("b", "c", None), 1));
    }

    #[test]
    fn nothing_is_kept_of_what_is_over() {
        let slots = UpdateSlots::default();
        let one = machine("a", "c", None);
        assert!(slots.ask(&one, 1));
        assert!(slots.leave("a").is_empty());
        let contents = slots.0.lock();
        assert!(contents.class_of.is_empty() && contents.classes.is_empty());
    }
}
