//! All timers, in one queue.

use ostler_api::ProviderName;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tokio::time::Instant;

use super::map::Map;
use super::{LostKey, OperationId, SessionKey};

/// The kind of timer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// Hello of a stream.
    Hello(SessionKey),
    /// The next heartbeat of a session.
    Heartbeat(SessionKey),
    /// Acknowledgements that wait for another frame of a session.
    Flush(SessionKey),
    /// The time of [`Op::due`](super::Op::due). After an acceptance or a loss, the operation has a later timer.
    Operation(OperationId),
    /// The return of a driver that was lost.
    Resume(LostKey),
    /// Progress of an operation.
    Stall(OperationId),
    /// The next operation of a provider, by its rate.
    Rate(ProviderName),
    /// The end of the pause of the creates of a provider.
    Pause(ProviderName),
    /// The readiness of the active session of a provider.
    NotReady(ProviderName),
    /// The word that a provider has a driver that is ready, or none, after too many of them.
    Turned(ProviderName),
    /// Any driver at all of a provider with operations in its queue.
    Starved(ProviderName),
    /// The return of drivers with operations of an earlier core.
    Adoption,
    /// The end of the age of a session.
    Age(SessionKey),
    /// The end of a session that drains.
    Drained(SessionKey),
}

/// At most one time for each timer. Nearly every timer is cleared early: it is left in the queue then, until most of
/// the queue is cleared timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Every time that counts, and times that do not count any more.
    queue: BinaryHeap<Reverse<(Instant, Timer)>>,
    due: Map<Timer, Instant>,
}

/// So many times that do not count any more are always left.
const LEFT: usize = 64;

impl Timers {
    /// `timer` is due at `at` and not before.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        if self.due.insert(timer.clone(), at) == Some(at) {
            return;
        }
        if self.queue.len() > 2 * self.due.len() + LEFT {
            self.queue.retain(|Reverse((at, timer))| self.due.get(timer) == Some(at));
        }
        self.queue.push(Reverse((at, timer)));
    }

    /// As [`Self::set`], unless the timer is set already.
    pub(crate) fn start(&mut self, timer: Timer, at: Instant) {
        if !self.due.contains_key(&timer) {
            self.set(timer, at);
        }
    }

    /// `timer` is not due any more.
    pub(crate) fn clear(&mut self, timer: &Timer) {
        self.due.remove(timer);
    }

    /// When `timer` is due.
    pub(crate) fn due(&self, timer: &Timer) -> Option<Instant> {
        self.due.get(timer).copied()
    }

    /// Whether `timer` is due some time.
    pub(crate) fn is_set(&self, timer: &Timer) -> bool {
        self.due.contains_key(timer)
    }

    /// Whether no timer is due some time.
    #[cfg(test)]
    pub(crate) fn none_is_set(&self) -> bool {
        self.due.is_empty()
    }

    /// No timer is due earlier.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next timer if due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        while self.next().is_some_and(|at| at <= now) {
            let Reverse((at, timer)) = self.queue.pop()?;
            if self.due.get(&timer) == Some(&at) {
                self.due.remove(&timer);
                return Some(timer);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timers_come_due_in_order_and_only_at_their_last_time() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        timers.set(Timer::Hello(1), at(3));
        timers.set(Timer::Hello(2), at(1));
        timers.set(Timer::Hello(1), at(2));
        timers.start(Timer::Hello(1), at(9));
        timers.set(Timer::Hello(3), at(1));
        timers.clear(&Timer::Hello(3));
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!(timers.pop(now), None);
        assert_eq!(timers.pop(at(5)), Some(Timer::Hello(2)));
        assert_eq!(timers.pop(at(5)), Some(Timer::Hello(1)));
        assert_eq!((timers.pop(at(5)), timers.next()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn cleared_timers_take_little_room_and_none_that_is_set_is_lost() {
        let now = Instant::now();
        let at = |number| now + Duration::from_secs(number);
        let mut timers = Timers::default();
        for number in 0..10_000 {
            timers.set(Timer::Hello(number), at(number));
            if !number.is_multiple_of(1000) {
                timers.clear(&Timer::Hello(number));
            }
            timers.set(Timer::Flush(1), at(number));
            assert!(timers.queue.len() <= 2 * timers.due.len() + LEFT + 2);
        }
        let due: Vec<_> = std::iter::from_fn(|| timers.pop(at(10_000))).collect();
        let mut expected: Vec<_> = (0..10).map(|number| Timer::Hello(number * 1000)).collect();
        expected.push(Timer::Flush(1));
        assert_eq!(due, expected);
    }
}
