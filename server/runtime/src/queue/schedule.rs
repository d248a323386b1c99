//! The rules of the queue, as a state machine that receives the time as an argument.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::Backoff;

/// How urgent a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Resync, relist or an expired timer: no user waits for it.
    Background,
    /// Something changed: an edit, a deletion, an answer of a driver.
    Change,
}

/// A worker's result for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do before the next event.
    Done,
    /// Succeeded; reconcile again after this time.
    Again(Duration),
    /// Failed; reconcile again after the backoff of the key.
    Failed,
    /// The same, because something had changed: the first time in a row without a backoff if an event came meanwhile.
    Outdated,
}

/// One background key runs after this many changes, so that a stream of changes cannot starve the rest.
const CHANGES_PER_BACKGROUND: u32 = 16;

/// A position in the queue of a priority.
#[derive(Debug, Clone, Copy)]
struct Place {
    priority: Priority,
    number: u64,
    since: Instant,
}

#[derive(Debug, Default)]
struct Entry {
    place: Option<Place>,
    /// A worker is processing it.
    running: bool,
    /// An event came while it could not be queued, because it ran or was in backoff.
    dirty: Option<Priority>,
    failures: u32,
    /// Not queued before this time, whatever happens.
    backoff_until: Option<Instant>,
    /// When the key is queued, unless queued earlier.
    due: Option<Instant>,
    /// Its entry in the timers.
    timer: Option<(Instant, u64)>,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.place.is_none() && !self.running && self.timer.is_none() && self.failures == 0
    }
}

/// A key for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready<K> {
    pub(super) key: K,
    /// How long it waited in the queue.
    pub(super) waited: Duration,
}

#[derive(Debug)]
pub(super) struct Schedule<K> {
    backoff: Backoff,
    entries: HashMap<K, Entry>,
    change: BTreeMap<u64, K>,
    background: BTreeMap<u64, K>,
    timers: BTreeMap<(Instant, u64), K>,
    next_number: u64,
    changes_in_a_row: u32,
}

impl<K: Clone + Eq + Hash> Schedule<K> {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            entries: HashMap::new(),
            change: BTreeMap::new(),
            background: BTreeMap::new(),
            timers: BTreeMap::new(),
            next_number: 0,
            changes_in_a_row: 0,
        }
    }

    /// Keys that wait for a worker.
    pub(super) fn depth(&self) -> usize {
        self.change.len() + self.background.len()
    }

    /// Keys that the schedule keeps.
    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.entries.len()
    }

    /// An event about `key`.
    pub(super) fn add(&mut self, key: K, priority: Priority, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running || entry.backoff_until.is_some() {
            entry.dirty = entry.dirty.max(Some(priority));
            return;
        }
        self.enqueue(key, priority, now);
    }

    /// Queues `key` after `delay`, unless something does so earlier. The earliest request wins.
    pub(super) fn add_after(&mut self, key: &K, delay: Duration, now: Instant) {
        let due = now + delay;
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.place.is_some() || entry.due.is_some_and(|earlier| earlier <= due) {
            return;
        }
        entry.due = Some(due);
        self.arm(key);
    }

    /// Queues every key whose time has come.
    pub(super) fn release_due(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                return;
            }
            let key = first.remove();
            self.release(key, now);
        }
    }

    fn release(&mut self, key: K, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.timer = None;
        entry.due = None;
        if entry.running {
            entry.dirty = entry.dirty.max(Some(Priority::Background));
            return;
        }
        entry.backoff_until = None;
        let priority = entry.dirty.take().unwrap_or(Priority::Background);
        self.enqueue(key, priority, now);
    }

    /// When [`Self::release_due`] has something to do next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next key for a worker. Drops the key's later timer: the worker sets a new one.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Ready<K>> {
        let key = self.pop_next()?;
        self.disarm(&key);
        let entry = self.entries.entry(key.clone()).or_default();
        let since = entry.place.take().map_or(now, |place| place.since);
        entry.running = true;
        entry.due = None;
        Some(Ready { key, waited: now.saturating_duration_since(since) })
    }

    fn pop_next(&mut self) -> Option<K> {
        let background_turn = self.changes_in_a_row >= CHANGES_PER_BACKGROUND;
        if !background_turn && let Some((_, key)) = self.change.pop_first() {
            self.changes_in_a_row += 1;
            return Some(key);
        }
        self.changes_in_a_row = 0;
        self.background.pop_first().or_else(|| self.change.pop_first()).map(|(_, key)| key)
    }

    /// The worker has finished `key`.
    pub(super) fn finish(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.running = false;
        match outcome {
            Outcome::Done => entry.failures = 0,
            Outcome::Again(delay) => {
                entry.failures = 0;
                let due = now + delay;
                entry.due = Some(entry.due.map_or(due, |earlier| earlier.min(due)));
            }
            Outcome::Failed | Outcome::Outdated => {
                entry.failures = entry.failures.saturating_add(1);
                let news = entry.dirty.is_some() && entry.failures == 1;
                let waits = outcome == Outcome::Failed || !news;
                entry.backoff_until = waits.then(|| now + self.backoff.delay(entry.failures));
                entry.due = None;
            }
        }
        match (entry.backoff_until, entry.dirty) {
            (None, Some(priority)) => {
                entry.dirty = None;
                self.enqueue(key.clone(), priority, now);
            }
            (None, None) | (Some(_), _) => self.arm(key),
        }
        if self.entries.get(key).is_some_and(Entry::is_idle) {
            self.entries.remove(key);
        }
    }

    /// Puts `key` into `priority`, or moves it there from a less urgent one.
    fn enqueue(&mut self, key: K, priority: Priority, now: Instant) {
        self.disarm(&key);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.due = None;
        let since = match entry.place {
            Some(place) if place.priority >= priority => return,
            Some(place) => {
                self.background.remove(&place.number);
                place.since
            }
            None => now,
        };
        let number = self.next_number;
        self.next_number += 1;
        entry.place = Some(Place { priority, number, since });
        match priority {
            Priority::Change => self.change.insert(number, key),
            Priority::Background => self.background.insert(number, key),
        };
    }

    /// Sets the timer of `key` to the time at which it may be queued next, if there is one.
    fn arm(&mut self, key: &K) {
        self.disarm(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(at) = entry.backoff_until.or(entry.due) else { return };
        let timer = (at, self.next_number);
        self.next_number += 1;
        entry.timer = Some(timer);
        self.timers.insert(timer, key.clone());
    }

    fn disarm(&mut self, key: &K) {
        if let Some(timer) = self.entries.get_mut(key).and_then(|entry| entry.timer.take()) {
            self.timers.remove(&timer);
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
