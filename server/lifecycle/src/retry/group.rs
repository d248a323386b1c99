//! A driver that could not read a group.

use std::time::Duration;

use ostler_api::driver::OperationKind;

use super::rule_for;
use crate::operation::Failure;

/// The longest wait of what the table has no time for.
const LATER: Duration = Duration::from_mins(10);

/// When it is asked again. `failures`: how often it failed in a row, this time included; `room`: the time set for
/// exhausted resources.
pub fn group_read_again(failure: &Failure, failures: i32, room: Duration) -> Duration {
    let then = rule_for(OperationKind::GetPoolStatus, failure).then;
    let wait = then.wait(failures, room).unwrap_or(LATER);
    failure.retry_after.unwrap_or(wait)
}

#[cfg(test)]
mod tests {
    use ostler_api::driver::{Certainty, ErrorCode};

    use super::*;

    #[test]
    fn a_read_of_a_group_that_failed_waits_as_the_table_says() {
        for (code, reason, first, max) in [
            (ErrorCode::Unavailable, "", 5, 120),
            (ErrorCode::Unavailable, "CORE_SESSION_LOST", 1, 60),
            (ErrorCode::DeadlineExceeded, "", 5, 180),
            (ErrorCode::Internal, "", 60, 600),
            (ErrorCode::OutOfRange, "", 60, 600),
            (ErrorCode::FailedPrecondition, "NOT_OURS", 60, 600),
            (ErrorCode::FailedPrecondition, "", 30, 600),
            (ErrorCode::Unauthenticated, "", 180, 1800),
            (ErrorCode::PermissionDenied, "", 180, 1800),
            (ErrorCode::ResourceExhausted, "", 77, 77),
        ] {
            let failure = Failure {
                reason: reason.to_owned(),
                ..Failure::new(code, Certainty::NotApplied, "no")
            };
            let after = |failure: &Failure, failures| {
                group_read_again(failure, failures, Duration::from_secs(77)).as_secs()
            };
            let name = code.name();
            assert_eq!((after(&failure, 1), after(&failure, 99)), (first, max), "{name} {reason}");
            let told = Failure { retry_after: Some(Duration::from_secs(7)), ..failure };
            assert_eq!(after(&told, 3), 7, "{name} {reason}");
        }
    }
}
