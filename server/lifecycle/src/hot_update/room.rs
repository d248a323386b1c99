//! Who may be updated now, and who is next: first come, first served, so many at once.

use std::collections::{BTreeMap, BTreeSet};

/// What a plan does with the room of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoomUse {
    /// Nothing: a place is given back, and whoever waits no more leaves the line. So does one whose
    /// update failed and has to wait for its next attempt.
    #[default]
    None,
    /// It wants a place, and none was asked for in this pass.
    Wants,
    /// It waits for one.
    Waits,
    /// An update is with a driver, or is about to be.
    Uses,
}

/// What a Machine was told of the room of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoomView {
    /// Nobody asked in this pass.
    #[default]
    NotAsked,
    /// It has a place.
    Granted,
    /// There is none.
    Full {
        /// How many wait before it.
        ahead: usize,
        /// How many there may be at once.
        limit: usize,
    },
}

/// The places of one class. Bounded by its Machines.
#[derive(Debug, Clone, Default)]
pub struct Rooms {
    /// UIDs of Machines that have a place.
    holders: BTreeSet<String>,
    /// UIDs of Machines that wait, by ticket.
    line: BTreeMap<u64, String>,
    tickets: BTreeMap<String, u64>,
    next_ticket: u64,
    /// As it was last asked with.
    limit: usize,
}

impl Rooms {
    /// Takes a place whatever the limit: the update is under way.
    pub fn hold(&mut self, uid: &str) {
        self.leave_line(uid);
        self.holders.insert(uid.to_owned());
    }

    /// Asks for a place, of `limit`. Who is told to wait keeps the turn until it [leaves](Self::leave).
    pub fn ask(&mut self, uid: &str, limit: usize) -> RoomView {
        self.limit = limit;
        if self.holders.contains(uid) {
            return RoomView::Granted;
        }
        let next = &mut self.next_ticket;
        let line = &mut self.line;
        let ticket = *self.tickets.entry(uid.to_owned()).or_insert_with(|| {
            *next += 1;
            line.insert(*next, uid.to_owned());
            *next
        });
        let ahead = self.line.range(..ticket).count();
        if ahead < self.free() {
            self.hold(uid);
            return RoomView::Granted;
        }
        RoomView::Full { ahead, limit }
    }

    /// Gives a place or a turn back.
    pub fn leave(&mut self, uid: &str) {
        self.holders.remove(uid);
        self.leave_line(uid);
    }

    /// Whose turn it is: the first of the line, as many as there are free places.
    pub fn next(&self) -> Vec<String> {
        self.line.values().take(self.free()).cloned().collect()
    }

    /// How many have a place.
    pub fn holding(&self) -> usize {
        self.holders.len()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether nobody has a place or waits.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.line.is_empty()
    }

    fn free(&self) -> usize {
        self.limit.saturating_sub(self.holders.len())
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

    fn full(ahead: usize, limit: usize) -> RoomView {
        RoomView::Full { ahead, limit }
    }

    #[test]
    fn places_go_to_whoever_came_first() {
        let mut rooms = Rooms::default();
        assert_eq!(rooms.ask("a", 2), RoomView::Granted);
        assert_eq!(rooms.ask("b", 2), RoomView::Granted);
        assert_eq!(rooms.ask("c", 2), full(0, 2));
        assert_eq!(rooms.ask("d", 2), full(1, 2));
        assert!(rooms.next().is_empty(), "there is no room for anybody");
        rooms.leave("a");
        assert_eq!(rooms.next(), ["c"]);
        assert_eq!(rooms.ask("e", 2), full(2, 2), "whoever comes last does not push in");
        assert_eq!(rooms.ask("d", 2), full(1, 2), "nor does whoever asks more often");
        assert_eq!(rooms.ask("c", 2), RoomView::Granted);
        assert_eq!((rooms.holding(), rooms.waiting()), (2, 2));
    }

    #[test]
    fn one_that_has_to_retry_gives_its_place_back_and_goes_to_the_end() {
        let mut rooms = Rooms::default();
        for uid in ["a", "b", "c"] {
            rooms.ask(uid, 1);
        }
        rooms.leave("a");
        assert_eq!(rooms.ask("a", 1), full(2, 1));
        assert_eq!(rooms.ask("b", 1), RoomView::Granted);
    }

    #[test]
    fn one_that_does_not_come_when_it_is_its_turn_holds_nobody_up_once_it_left() {
        let mut rooms = Rooms::default();
        for uid in ["a", "b", "c"] {
            rooms.ask(uid, 1);
        }
        rooms.leave("a");
        assert_eq!(rooms.next(), ["b"]);
        rooms.leave("b");
        assert_eq!(rooms.next(), ["c"]);
    }

    #[test]
    fn what_is_under_way_counts_even_above_the_limit() {
        let mut rooms = Rooms::default();
        for uid in ["a", "b", "c"] {
            rooms.hold(uid);
        }
        assert_eq!(rooms.ask("d", 2), full(0, 2));
        rooms.leave("a");
        assert!(rooms.next().is_empty());
        rooms.leave("b");
        assert_eq!(rooms.next(), ["d"]);
        assert_eq!(rooms.ask("c", 2), RoomView::Granted, "it has its place already");
    }

    #[test]
    fn a_larger_limit_makes_room_at_once_and_a_smaller_one_as_places_are_given_back() {
        let mut rooms = Rooms::default();
        for uid in ["a", "b", "c", "d"] {
            rooms.ask(uid, 1);
        }
        assert_eq!(rooms.ask("b", 3), RoomView::Granted);
        assert_eq!(rooms.next(), ["c"]);
        assert_eq!(rooms.ask("c", 1), full(0, 1));
    }

    #[test]
    fn nothing_is_kept_of_machines_that_left() {
        let mut rooms = Rooms::default();
        for uid in ["a", "b", "c"] {
            rooms.ask(uid, 1);
        }
        for uid in ["a", "b", "c", "stranger"] {
            rooms.leave(uid);
        }
        assert!(rooms.is_empty() && rooms.tickets.is_empty());
    }
}
