//! The consequence of a failure: the table, and the length of the wait, for Machines, groups and reviews.

mod group;
#[cfg(test)]
mod manual;
mod review;
mod table;

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{driver::OperationKind, operation::LONGEST_WAIT};

use crate::{
    operation::{Failure, Reason},
    time::after,
};

pub use group::group_read_again;
pub use review::review_failed;
pub(crate) use table::{MOST_LOSSES, pause_after};
pub use table::{Precondition, RetryAction, Rule, rule};

/// The rule for the failure.
pub(crate) fn rule_for(kind: OperationKind, failure: &Failure) -> Rule {
    rule(kind, failure.code, &failure.reason, failure.certainty)
}

/// Whether the core itself says that no driver was there to answer.
pub(crate) fn is_loss_of_session(failure: &Failure) -> bool {
    matches!(
        Reason::from_word(&failure.reason),
        Some(Reason::CoreNoSession | Reason::CoreSessionLost)
    )
}

/// `first`, doubled for each failure after the first, at most `max`.
pub(crate) fn backoff(first: Duration, max: Duration, failures: i32) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(20);
    first.saturating_mul(1_u32 << doublings).min(max)
}

/// Whether a wait is over: it has passed, or it is longer than any, since the clock was set back. `room`: the time
/// for exhausted resources.
pub(crate) fn is_over(until: Timestamp, now: Timestamp, room: Duration) -> bool {
    until <= now || until > after(now, LONGEST_WAIT.max(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_up_to_its_limit() {
        let (first, max) = (Duration::from_secs(5), Duration::from_mins(3));
        let waits: Vec<_> = (1..8).map(|n| backoff(first, max, n).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 180]);
        assert_eq!(backoff(first, max, i32::MAX), max);
    }
}
