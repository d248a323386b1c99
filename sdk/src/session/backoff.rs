//! When to dial again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// The longest wait while looking for the leader among several cores.
pub(crate) const SEARCH: Duration = Duration::from_secs(2);
/// Even the luckiest draw leaves the core a breath.
const SHORTEST: Duration = Duration::from_millis(100);
/// A session that lived for this long was healthy: the next failure is a first one again.
const HEALTHY: Duration = Duration::from_mins(1);

/// Full jitter: a random part of a limit that doubles with every failure in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    longest: Duration,
}

impl Backoff {
    /// No failures yet. Waits are at most `longest`.
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self { failures: 0, longest }
    }

    /// The time to wait after a connection that was live for `lived`; `draw` is random in 0..1.
    pub(crate) fn next(&mut self, lived: Duration, draw: f64) -> Duration {
        if lived >= HEALTHY {
            self.failures = 0;
        }
        let limit = FIRST.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        SHORTEST + limit.saturating_sub(SHORTEST).mul_f64(draw.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn the_limit_doubles_up_to_thirty_seconds() {
        let mut backoff = Backoff::up_to(LONGEST);
        let waits: Vec<u64> =
            (0..10).map(|_| backoff.next(NONE, 1.0).as_millis().try_into().unwrap()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
    }

    #[test]
    fn a_session_of_a_minute_starts_the_count_again() {
        let mut backoff = Backoff::up_to(LONGEST);
        for _ in 0..8 {
            backoff.next(Duration::from_secs(59), 1.0);
        }
        assert_eq!(backoff.next(Duration::from_mins(1), 1.0), FIRST);
    }

    proptest::proptest! {
        #[test]
        fn every_wait_is_between_a_tenth_of_a_second_and_thirty(
            failures in 0_u32..1000, draw in 0.0_f64..1.0,
        ) {
            let wait = Backoff { failures, longest: LONGEST }.next(NONE, draw);
            assert!((SHORTEST..=LONGEST).contains(&wait), "{wait:?}");
        }
    }
}
