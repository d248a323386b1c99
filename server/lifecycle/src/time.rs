//! Arithmetic with times that cannot fail.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The next whole second: what is written has no fractions of one.
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
