//! Update slots: how many Machines of a class are hot updated at the same time, and who is next. First come, first
//! served.

use std::collections::{BTreeMap, BTreeSet};

/// A Machine's state in the update slots of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotUse {
    /// Nothing. A Machine whose update failed and has to wait for its next attempt keeps no slot.
    #[default]
    None,
    /// A place in the line.
    Waits,
    /// A slot: an update is with a driver, or is about to be.
    Uses,
    /// A slot or a place in the line of a class that it named before.
    OfOtherClass,
}

/// The update slots of a class, as seen by one Machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotView {
    /// The Machine's slot.
    pub has: SlotUse,
    /// Machines in the queue before this Machine.
    pub ahead: usize,
    /// Free slots.
    pub free: usize,
    /// How many there are, see [`MaxParallel`](crate::max_parallel::MaxParallel).
    pub limit: usize,
}

impl SlotView {
    /// Whether the Machine may be updated now.
    pub fn is_granted(&self) -> bool {
        self.has == SlotUse::Uses || self.ahead < self.free
    }
}

/// The slots of a class. The map is bounded by the Machines of the class.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// UIDs of Machines that use a slot.
    holders: BTreeSet<String>,
    /// UIDs of Machines that wait, by ticket.
    line: BTreeMap<u64, String>,
    tickets: BTreeMap<String, u64>,
    next_ticket: u64,
    /// As it was last asked with.
    limit: usize,
}

impl Slots {
    /// The slot view of a Machine, for this limit. Changes nothing.
    pub fn view(&self, uid: &str, limit: usize) -> SlotView {
        let ticket = self.tickets.get(uid);
        let has = match ticket {
            _ if self.holders.contains(uid) => SlotUse::Uses,
            Some(_) => SlotUse::Waits,
            None => SlotUse::None,
        };
        let ahead = ticket.map_or(self.line.len(), |ticket| self.line.range(..ticket).count());
        SlotView { has, ahead, free: limit.saturating_sub(self.holders.len()), limit }
    }

    /// Takes a slot whatever the limit: the update is under way.
    pub fn hold(&mut self, uid: &str) {
        self.leave_line(uid);
        self.holders.insert(uid.to_owned());
    }

    /// Takes a slot if the Machine [may](SlotView::is_granted); returns whether it did.
    pub fn take(&mut self, uid: &str, limit: usize) -> bool {
        self.limit = limit;
        let granted = self.view(uid, limit).is_granted();
        if granted {
            self.hold(uid);
        }
        granted
    }

    /// Takes a place in the line, and keeps it until the Machine takes a slot or [leaves](Self::leave).
    pub fn wait(&mut self, uid: &str, limit: usize) {
        self.limit = limit;
        if !self.tickets.contains_key(uid) {
            self.next_ticket += 1;
            self.tickets.insert(uid.to_owned(), self.next_ticket);
            self.line.insert(self.next_ticket, uid.to_owned());
        }
    }

    /// Gives a slot or a place in the line back.
    pub fn leave(&mut self, uid: &str) {
        self.holders.remove(uid);
        self.leave_line(uid);
    }

    /// The Machines that may take a slot now: the first in line, as many as there are free slots.
    pub fn next(&self) -> Vec<String> {
        let free = self.limit.saturating_sub(self.holders.len());
        self.line.values().take(free).cloned().collect()
    }

    /// How many use a slot.
    pub fn holding(&self) -> usize {
        self.holders.len()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether no Machine uses a slot or waits.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.line.is_empty()
    }

    fn leave_line(&mut self, uid: &str) {
        if let Some(ticket) = self.tickets.remove(uid) {
            self.line.remove(&ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a Machine that wants a slot.
    #[derive(Debug, PartialEq, Eq)]
    enum Told {
        Granted,
        Full { ahead: usize, limit: usize },
    }

    fn full(ahead: usize, limit: usize) -> Told {
        Told::Full { ahead, limit }
    }

    impl Slots {
        fn ask(&mut self, uid: &str, limit: usize) -> Told {
            if self.take(uid, limit) {
                return Told::Granted;
            }
            self.wait(uid, limit);
            Told::Full { ahead: self.view(uid, limit).ahead, limit }
        }
    }

    #[test]
    fn slots_go_to_the_machine_that_came_first() {
        let mut slots = Slots::default();
        assert_eq!(slots.ask("a", 2), Told::Granted);
        assert_eq!(slots.ask("b", 2), Told::Granted);
        assert_eq!(slots.ask("c", 2), full(0, 2));
        assert_eq!(slots.ask("d", 2), full(1, 2));
        assert!(slots.next().is_empty(), "no slot is free");
        slots.leave("a");
        assert_eq!(slots.next(), ["c"]);
        assert_eq!(slots.ask("e", 2), full(2, 2), "the last one does not jump the line");
        assert_eq!(slots.ask("d", 2), full(1, 2), "nor does one that asks more often");
        assert_eq!(slots.ask("c", 2), Told::Granted);
        assert_eq!((slots.holding(), slots.waiting()), (2, 2));
    }

    #[test]
    fn one_that_has_to_retry_gives_its_slot_back_and_goes_to_the_end() {
        let mut slots = Slots::default();
        for uid in ["a", "b", "c"] {
            slots.ask(uid, 1);
        }
        slots.leave("a");
        assert_eq!(slots.ask("a", 1), full(2, 1));
        assert_eq!(slots.ask("b", 1), Told::Granted);
    }

    #[test]
    fn one_that_does_not_take_its_slot_holds_no_other_up_once_it_left() {
        let mut slots = Slots::default();
        for uid in ["a", "b", "c"] {
            slots.ask(uid, 1);
        }
        slots.leave("a");
        assert_eq!(slots.next(), ["b"]);
        slots.leave("b");
        assert_eq!(slots.next(), ["c"]);
    }

    #[test]
    fn what_is_under_way_counts_even_above_the_limit() {
        let mut slots = Slots::default();
        for uid in ["a", "b", "c"] {
            slots.hold(uid);
        }
        assert_eq!(slots.ask("d", 2), full(0, 2));
        slots.leave("a");
        assert!(slots.next().is_empty());
        slots.leave("b");
        assert_eq!(slots.next(), ["d"]);
        assert_eq!(slots.ask("c", 2), Told::Granted, "it has its slot already");
    }

    #[test]
    fn a_larger_limit_frees_slots_and_a_smaller_one_takes_effect_as_slots_are_given_back() {
        let mut slots = Slots::default();
        for uid in ["a", "b", "c", "d"] {
            slots.ask(uid, 1);
        }
        assert_eq!(slots.ask("b", 3), Told::Granted);
        assert_eq!(slots.next(), ["c"]);
        assert_eq!(slots.ask("c", 1), full(0, 1));
    }

    #[test]
    fn nothing_is_kept_of_machines_that_left() {
        let mut slots = Slots::default();
        for uid in ["a", "b", "c"] {
            slots.ask(uid, 1);
        }
        for uid in ["a", "b", "c", "stranger"] {
            slots.leave(uid);
        }
        assert!(slots.is_empty() && slots.tickets.is_empty());
    }
}
