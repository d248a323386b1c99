//! Places of all classes. Only the core that leads gives any, so counting here is enough.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_api::Machine;
use ostler_api::driver::OperationKind;
use ostler_api::machine::OperationIntent;
use ostler_lifecycle::hot_update::{RoomUse, RoomView, Rooms};

use crate::watch::ObjectName;

/// Bounded by the machines that exist: each is in one class, and leaves when it is gone.
#[derive(Debug, Default)]
pub(crate) struct AllRooms {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    classes: HashMap<ObjectName, Rooms>,
    /// In which class a machine has a place or a turn, by its UID.
    of: HashMap<String, ObjectName>,
}

impl AllRooms {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An update of this machine was under way before this core led: it has its place. Until it is
    /// looked at, nobody else may take it.
    pub(crate) fn take_over(&self, machine: &Machine) {
        let intent = machine.status.as_ref().and_then(|status| status.operation.as_ref());
        let kind = intent.and_then(OperationIntent::operation_kind);
        if kind == Some(OperationKind::UpdateMachine) {
            self.lock().rooms(machine.uid(), &class_of(machine)).hold(machine.uid());
        }
    }

    /// Asks for a place.
    pub(crate) fn ask(&self, machine: &Machine, limit: usize) -> RoomView {
        self.lock().rooms(machine.uid(), &class_of(machine)).ask(machine.uid(), limit)
    }

    /// What a pass made of its place; returns the UIDs of machines whose turn it is now.
    pub(crate) fn settle(&self, machine: &Machine, room: RoomUse) -> Vec<String> {
        match room {
            RoomUse::Uses => {
                self.lock().rooms(machine.uid(), &class_of(machine)).hold(machine.uid());
                Vec::new()
            }
            RoomUse::Wants | RoomUse::Waits => Vec::new(),
            RoomUse::None => self.leave(machine.uid()),
        }
    }

    /// Gives a place or a turn back; returns the UIDs of machines whose turn it is now.
    pub(crate) fn leave(&self, uid: &str) -> Vec<String> {
        self.lock().leave(uid)
    }

    /// How many machines are updated, and how many wait for their turn.
    pub(crate) fn count(&self) -> (usize, usize) {
        let contents = self.lock();
        let all = contents.classes.values();
        all.fold((0, 0), |sum, one| (sum.0 + one.holding(), sum.1 + one.waiting()))
    }
}

impl Contents {
    /// The rooms of a class. A machine that was in another one leaves that.
    fn rooms(&mut self, uid: &str, class: &ObjectName) -> &mut Rooms {
        if self.of.get(uid).is_some_and(|old| old != class) {
            self.leave(uid);
        }
        self.of.insert(uid.to_owned(), class.clone());
        self.classes.entry(class.clone()).or_default()
    }

    fn leave(&mut self, uid: &str) -> Vec<String> {
        let Some(class) = self.of.remove(uid) else { return Vec::new() };
        let Some(rooms) = self.classes.get_mut(&class) else { return Vec::new() };
        rooms.leave(uid);
        let next = rooms.next();
        if rooms.is_empty() {
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

    #[test]
    fn updates_of_the_core_before_keep_their_places() {
        let rooms = AllRooms::default();
        rooms.take_over(&machine("a", "c", Some("UpdateMachine")));
        rooms.take_over(&machine("b", "c", Some("CreateMachine")));
        rooms.take_over(&machine("d", "c", None));
        assert_eq!(rooms.count(), (1, 0));
        let full = RoomView::Full { ahead: 0, limit: 1 };
        assert_eq!(rooms.ask(&machine("b", "c", None), 1), full);
        assert_eq!(rooms.leave("a"), ["b"]);
    }

    #[test]
    fn classes_do_not_share_their_places() {
        let rooms = AllRooms::default();
        assert_eq!(rooms.ask(&machine("a", "c", None), 1), RoomView::Granted);
        assert_eq!(rooms.ask(&machine("b", "d", None), 1), RoomView::Granted);
    }

    #[test]
    fn a_machine_that_changes_class_leaves_the_other_one() {
        let rooms = AllRooms::default();
        rooms.ask(&machine("a", "c", None), 1);
        rooms.ask(&machine("a", "d", None), 1);
        assert_eq!(rooms.count(), (1, 0));
        assert_eq!(rooms.ask(&machine("b", "c", None), 1), RoomView::Granted);
    }

    #[test]
    fn nothing_is_kept_of_what_is_over() {
        let rooms = AllRooms::default();
        let one = machine("a", "c", None);
        rooms.ask(&one, 1);
        assert!(rooms.settle(&one, RoomUse::Uses).is_empty());
        rooms.settle(&one, RoomUse::None);
        let contents = rooms.lock();
        assert!(contents.of.is_empty() && contents.classes.is_empty());
    }
}
