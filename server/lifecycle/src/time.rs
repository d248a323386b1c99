//! Arithmetic with times that cannot fail.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A time after another; never overflows.
pub(crate) fn after(from: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| from.checked_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}
