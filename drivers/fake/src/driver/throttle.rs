//! A cloud that takes only so many calls in a time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::spec::Throttle as Limit;

/// Counts the calls of one process.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    window: Mutex<Option<Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Timestamp,
    calls: u32,
}

impl Throttle {
    /// Counts a call; when to try again if it is one too many.
    pub(super) fn admit(&self, limit: Limit, now: Timestamp) -> Option<Duration> {
        let length = SignedDuration::try_from(limit.per.0).unwrap_or(SignedDuration::MAX);
        let mut window = self.window.lock();
        let current = window.filter(|window| now.duration_since(window.began) < length);
        let current = window.insert(current.unwrap_or(Window { began: now, calls: 0 }));
        if current.calls < limit.calls {
            current.calls += 1;
            return None;
        }
        Some((length - now.duration_since(current.began)).unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::GoDuration;

    #[test]
    fn one_call_too_many_is_told_when_the_next_window_begins() {
        let limit = Limit { calls: 2, per: GoDuration(Duration::from_secs(10)) };
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let throttle = Throttle::default();
        let answers = [0, 3, 4, 9, 10, 11, 12].map(|second| throttle.admit(limit, at(second)));
        let wait = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(answers, [None, None, wait(6), wait(1), None, None, wait(8)]);
    }
}
