//! Arithmetic with times that cannot fail.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The next whole second: written times have no fractions.
pub(crate) fn second_after(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second().saturating_add(1)).unwrap_or(time)
}

/// A time after another; never overflows.
pub(crate) fn after(from: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| from.checked_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}

/// For how long to wait for a time that is over: a plan that waits for one expects something else to come, and must not
/// be made again without pause.
const LATE: Duration = Duration::from_secs(1);

/// The time left until `at`, which may be now.
pub fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(LATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_over_is_no_reason_to_look_again_without_pause() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (time, wait) in [(95, LATE), (100, Duration::ZERO), (105, Duration::from_secs(5))] {
            assert_eq!(until(at(time), at(100)), wait, "{time}");
        }
    }
}
