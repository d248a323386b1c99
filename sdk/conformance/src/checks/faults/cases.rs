//! The faults to try at each request, and the errors that may follow.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::{MachineErrorCode, MachineErrorReason, OperationError, OutcomeCertainty};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::answer::{Answer, shown};
use crate::checks::unanswered::goes_on;
use crate::cloud::{ALL, Fault, Faults};
use crate::outcome::{Outcome, ensure};

/// Of one operation. More are tried in part, chosen by the seed.
const MOST_CASES: usize = 60;
/// An outage of a second is not worth more.
const SOON: Duration = Duration::from_mins(1);

/// An operation, and how it names its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    /// The Machine is deleted after it, and not created again.
    CreateDeleted,
    Status,
    StatusById,
    List,
    Initialize,
    Update,
    Delete,
    DeleteById,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::CreateDeleted => "create-deleted",
            Self::Status => "status",
            Self::StatusById => "status-by-id",
            Self::List => "list",
            Self::Initialize => "initialize",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::DeleteById => "delete-by-id",
        }
    }

    /// The check makes the instance itself.
    pub(super) fn creates(self) -> bool {
        matches!(self, Self::Create | Self::CreateDeleted)
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Status | Self::StatusById | Self::List)
    }

    /// The cases of an operation that makes so many requests.
    pub(super) fn cases(self, requests: usize, faults: &Faults) -> Vec<(usize, Fault)> {
        if let Some(only) = &faults.only {
            let wanted = only.operation == self.name();
            return wanted.then_some((only.request, only.fault)).into_iter().collect();
        }
        // What a create leaves is the same after most of them.
        let faults_of = if self == Self::CreateDeleted { &ALL[..2] } else { &ALL[..] };
        let at = |at| faults_of.iter().map(move |fault| (at, *fault));
        let mut all: Vec<_> = (1..=requests).flat_map(at).collect();
        if all.len() > MOST_CASES {
            all.shuffle(&mut StdRng::seed_from_u64(faults.seed));
            all.truncate(MOST_CASES);
        }
        if faults.list_lag.is_some() && self == Self::Create {
            // The create that is repeated while its search shows nothing yet.
            all.extend((1..=requests).map(|at| (at, Fault::Stale)));
        }
        all
    }
}

/// The error of an operation of which a request met a fault.
pub(super) fn judged(verb: Verb, fault: Fault, answer: &Answer) -> Outcome<OperationError> {
    let error = answer.error("an error")?;
    if fault.passes_soon() {
        goes_on(answer)?;
        let slow = [MachineErrorCode::ResourceExhausted, MachineErrorCode::Internal];
        let expected = "an error after which the core asks again within seconds, e.g. UNAVAILABLE";
        ensure(!slow.contains(&error.code()), expected, shown(&error))?;
    }
    let wait = error.retry_after.and_then(|it| Duration::try_from(it).ok());
    if wait.is_some_and(|it| it > SOON) {
        let came = format!("{wait:?}, {}", shown(&error));
        return ensure(false, format_args!("retry_after of {SOON:?} at most"), came)
            .map(|()| error);
    }
    let throttled = fault == Fault::Refused(429)
        && error.code() == MachineErrorCode::ResourceExhausted
        && wait.is_none();
    ensure(
        !throttled,
        "retry_after as the cloud says with 429 (Retry-After: 1), without which the core waits for ten minutes",
        shown(&error),
    )?;
    if verb.reads() {
        let absent = error.code() == MachineErrorCode::NotFound
            || error.acts_by() == MachineErrorReason::NotOurs;
        ensure(!absent, "an error that does not say what is there", shown(&error))?;
    } else {
        let unsaid = error.certainty() == OutcomeCertainty::Unspecified;
        ensure(!unsaid, "an error with its certainty", shown(&error))?;
    }
    Ok(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_driver_gets_every_case_a_large_one_those_of_its_seed_and_one_can_be_asked_for() {
        let faults = |seed, only: Option<&str>| Faults {
            seed,
            only: only.map(|it| it.parse().unwrap()),
            ..Faults::default()
        };
        assert_eq!(Verb::Create.cases(3, &faults(0, None)).len(), 3 * ALL.len());
        let large = |seed| Verb::Create.cases(50, &faults(seed, None));
        assert_eq!(large(1).len(), MOST_CASES);
        assert_eq!(large(1), large(1));
        assert_ne!(large(1), large(2));
        let only = faults(0, Some("create 2 lost"));
        assert_eq!(Verb::Create.cases(3, &only), [(2, Fault::Lost)]);
        assert_eq!(Verb::Delete.cases(3, &only), []);
        let lags = Faults { list_lag: Some(Duration::from_secs(2)), ..Faults::default() };
        assert!(Verb::Create.cases(2, &lags).contains(&(2, Fault::Stale)));
    }
}
