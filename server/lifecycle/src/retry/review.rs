//! A driver that could not say whether it takes a class.

use std::time::Duration;

use ostler_api::driver::OperationKind;

use super::rule_for;
use crate::{hot_update::ReviewView, operation::Failure};

/// The review for Machines, and when the driver is asked again; `None`: not before class or driver
/// change. `failures`: how often it failed in a row before.
pub fn review_failed(failure: &Failure, failures: i32) -> (ReviewView, Option<Duration>) {
    let rule = rule_for(OperationKind::ValidateClass, failure);
    let Some(again) = rule.then.wait(failures.saturating_add(1), LATER) else {
        return (ReviewView::NoAnswer, None);
    };
    let message = format!("ValidateClass: {}: {}", failure.code.name(), failure.text());
    (
        ReviewView::Failed { reason: rule.reason, message },
        Some(failure.retry_after.unwrap_or(again)),
    )
}

/// A driver out of room for a question about a class says when to come back; else this.
const LATER: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use ostler_api::{
        driver::{Certainty, ErrorCode},
        machine::WaitReason,
    };

    use super::*;

    fn failed(code: ErrorCode, failures: i32) -> (ReviewView, Option<Duration>) {
        review_failed(&Failure::new(code, Certainty::NotApplied, "no"), failures)
    }

    #[test]
    fn a_driver_that_cannot_answer_now_is_asked_again_and_one_that_never_can_is_not() {
        assert_eq!(failed(ErrorCode::Unimplemented, 0), (ReviewView::NoAnswer, None));
        let (view, again) = failed(ErrorCode::Unavailable, 0);
        let ReviewView::Failed { reason, message } = view else { panic!("{view:?}") };
        assert_eq!(reason, WaitReason::DriverRetry);
        assert_eq!(message, "ValidateClass: Unavailable: no");
        assert_eq!(again, Some(Duration::from_secs(5)));
        assert_eq!(failed(ErrorCode::Unavailable, 3).1, Some(Duration::from_secs(40)));
    }
}
