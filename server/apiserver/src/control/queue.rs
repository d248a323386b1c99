//! The work queue of a controller.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::Outcome;

/// The delay after the first failure of a key; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(10);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(30);

/// Keys in the order of their arrival, each at most once; and keys that wait, each for one time. Bounded by the number
/// of objects.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    ready: VecDeque<K>,
    queued: HashSet<K>,
    waiting: BTreeMap<Due, K>,
    /// Until when a key waits.
    timers: HashMap<K, Due>,
    failures: HashMap<K, u32>,
    sequence: u64,
}

/// A time, and a number that tells two keys of the same time apart.
type Due = (Instant, u64);

impl<K: Clone + Ord + Hash> Queue<K> {
    pub(super) fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            queued: HashSet::new(),
            waiting: BTreeMap::new(),
            timers: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
        }
    }

    /// Queues a key to be looked at as soon as possible.
    pub(super) fn push(&mut self, key: K) {
        if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// The next key, when there is one. Safe to drop while it waits.
    pub(super) async fn next(&mut self) -> K {
        loop {
            let now = Instant::now();
            while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now)
            {
                let key = first.remove();
                self.timers.remove(&key);
                self.push(key);
            }
            if let Some(key) = self.ready.pop_front() {
                self.queued.remove(&key);
                return key;
            }
            match self.waiting.first_key_value() {
                Some(((due, _), _)) => sleep_until(*due).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Takes note of how an attempt at a key ended.
    pub(super) fn settle(&mut self, key: K, outcome: Outcome) {
        let delay = match outcome {
            Outcome::Done => {
                self.failures.remove(&key);
                self.disarm(&key);
                return;
            }
            Outcome::After(delay) => {
                self.failures.remove(&key);
                delay
            }
            Outcome::Retry => {
                let failures = self.failures.entry(key.clone()).or_insert(0);
                let delay = FIRST.saturating_mul(1_u32 << (*failures).min(16)).min(LONGEST);
                *failures = failures.saturating_add(1);
                delay
            }
        };
        let due = (Instant::now() + delay, self.sequence);
        if self.timers.get(&key).is_some_and(|armed| armed.0 <= due.0) {
            return;
        }
        self.disarm(&key);
        self.sequence += 1;
        self.timers.insert(key.clone(), due);
        self.waiting.insert(due, key);
    }

    fn disarm(&mut self, key: &K) {
        if let Some(due) = self.timers.remove(key) {
            self.waiting.remove(&due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_come_once_and_in_order_and_failed_ones_come_back_later_each_time() {
        let mut queue = Queue::new();
        for key in ["a", "b", "a"] {
            queue.push(key);
        }
        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
        let start = Instant::now();
        let mut waited = Vec::new();
        for _ in 0..3 {
            queue.settle("a", Outcome::Retry);
            assert_eq!(queue.next().await, "a");
            waited.push(start.elapsed().as_millis() / 10);
        }
        assert_eq!(waited, [1, 3, 7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_changes_again_and_again_waits_for_one_time_the_earliest() {
        let mut queue = Queue::new();
        let hour = Duration::from_hours(1);
        for outcome in [hour, hour / 2, hour].map(Outcome::After) {
            queue.settle("a", outcome);
            assert_eq!((queue.waiting.len(), queue.timers.len()), (1, 1));
        }
        let start = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), hour / 2);
        queue.settle("a", Outcome::After(hour));
        queue.settle("a", Outcome::Done);
        assert!(
            queue.waiting.is_empty() && queue.timers.is_empty(),
            "there is nothing to wait for"
        );
    }
}
