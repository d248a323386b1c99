//! The one source of wall-clock time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// The controllers' source of wall-clock time. Durations come from tokio's clock instead, so that a test on a paused
/// clock moves both.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of the host.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// For how long to wait for a time that is over: a plan that waits for one expects something else to come, and must not
/// be made again without pause.
const LATE: Duration = Duration::from_secs(1);

/// How long it is until a time, which may be now.
pub fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(LATE)
}

/// Keeps a [`Clock`] in a struct that derives `Debug`.
#[derive(Clone)]
pub struct DebugClock(pub Clock);

impl fmt::Debug for DebugClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
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
