//! Everything that is due at some time, in one ordered set.

use ostler_api::ProviderName;
use std::collections::BTreeSet;

use tokio::time::Instant;

use super::map::Map;
use super::{LostKey, OperationId, SessionKey};

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// Hello of a stream.
    Hello(SessionKey),
    /// The next heartbeat of a session.
    Heartbeat(SessionKey),
    /// Acknowledgements that wait for another frame of a session.
    Flush(SessionKey),
    /// What [`Op::due`](super::Op::due) says. One that was accepted, or lost, in the meantime has a later one.
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
    /// Any driver at all of a provider with operations in its queue.
    Starved(ProviderName),
    /// The return of drivers with operations of an earlier core.
    Adoption,
    /// The end of the age of a session.
    Age(SessionKey),
    /// The end of a session that drains.
    Drained(SessionKey),
}

/// At most one time for each timer.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Instant, Timer)>,
    due: Map<Timer, Instant>,
}

impl Timers {
    /// `timer` is due at `at` and not before.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        if let Some(before) = self.due.insert(timer.clone(), at) {
            self.queue.remove(&(before, timer.clone()));
        }
        self.queue.insert((at, timer));
    }

    /// As [`Self::set`], unless the timer is set already.
    pub(crate) fn start(&mut self, timer: Timer, at: Instant) {
        if !self.due.contains_key(&timer) {
            self.set(timer, at);
        }
    }

    /// `timer` is not due any more.
    pub(crate) fn clear(&mut self, timer: &Timer) {
        if let Some((timer, at)) = self.due.remove_entry(timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// When `timer` is due.
    pub(crate) fn due(&self, timer: &Timer) -> Option<Instant> {
        self.due.get(timer).copied()
    }

    /// Whether `timer` is due some time.
    pub(crate) fn is_set(&self, timer: &Timer) -> bool {
        self.due.contains_key(timer)
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes the next one if it is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let due = self.queue.first().is_some_and(|(at, _)| *at <= now);
        let (_, timer) = if due { self.queue.pop_first() } else { None }?;
        self.due.remove(&timer);
        Some(timer)
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
}
