//! The faults to try at each request, and the errors that may follow.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::{MachineErrorCode, MachineErrorReason, OperationError, OutcomeCertainty};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::answer::{Answer, shown};
use crate::checks::unanswered::{goes_on, is_final};
use crate::cloud::{ALL, Case, Fault, Faults, Seen};
use crate::outcome::{Failure, NotPassed, Outcome, ensure, failed};

/// Of one operation. More are tried in part, chosen by the seed.
const MOST_CASES: usize = 60;
/// The answer does not come, or the request is refused.
const ANSWER_LOST: &[Fault] = &[Fault::Lost, Fault::Refused(500)];
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

    /// What a create leaves is the same after most faults.
    pub(super) fn ways(self) -> &'static [Fault] {
        if self == Self::CreateDeleted { ANSWER_LOST } else { &ALL }
    }
}

/// The cases of an operation, and what it asked the cloud without a fault.
#[derive(Debug)]
pub(super) struct Cases {
    pub(super) all: Vec<(usize, Fault)>,
    name: &'static str,
    clean: Vec<String>,
    seed: u64,
}

impl Cases {
    /// Each fault at each request, and with `lags` the answer that is lost while searches are late.
    pub(super) fn of(
        name: &'static str,
        ways: &[Fault],
        lags: bool,
        clean: Vec<String>,
        faults: &Faults,
    ) -> Outcome<Self> {
        ensure(
            !clean.is_empty(),
            "requests of the driver where --cloud-env says, or through its HTTP proxy",
            format_args!("none during {name}: does the driver read that variable?"),
        )?;
        let of = |faults: &[Fault]| -> Vec<_> {
            (1..=clean.len()).flat_map(|at| faults.iter().map(move |it| (at, *it))).collect()
        };
        let mut all = of(ways);
        if all.len() > MOST_CASES {
            all.shuffle(&mut StdRng::seed_from_u64(faults.seed));
            all.truncate(MOST_CASES);
        }
        if faults.list_lag.is_some() && lags {
            all.extend(of(&[Fault::Stale]));
        }
        if let Some(only) = &faults.only {
            let wanted = only.operation == name;
            all = wanted.then_some((only.request, only.fault)).into_iter().collect();
        }
        Ok(Self { all, name, clean, seed: faults.seed })
    }

    /// A failure names its case. A word that --cloud-fault-cmd does not know is skipped.
    pub(super) fn told(&self, case: (usize, Fault), played: Outcome<Seen>) -> Outcome {
        let Err(NotPassed::Failed(Failure { expected, came })) = played else { return Ok(()) };
        let ((request, fault), name) = (case, self.name);
        let line = self.clean.get(request - 1).map_or("", String::as_str);
        let case = Case { operation: name.to_owned(), request, fault };
        Err(failed(
            expected,
            format_args!(
                "{came}\nafter {fault} at request {request} of {name} ({line}); --only '{case}' repeats it, seed {}",
                self.seed
            ),
        ))
    }
}

/// Whether the operation of this name is wanted.
pub(super) fn wants(faults: &Faults, name: &str) -> bool {
    faults.only.as_ref().is_none_or(|only| only.operation == name)
}

/// The error of an operation of which a request met a fault.
pub(super) fn judged(reads: bool, fault: Fault, answer: &Answer) -> Outcome<OperationError> {
    let error = answer.error("an error")?;
    if fault.passes_soon() {
        goes_on(answer)?;
        let slow = [MachineErrorCode::ResourceExhausted, MachineErrorCode::Internal];
        let expected = "an error after which the core asks again within seconds, e.g. UNAVAILABLE";
        ensure(!slow.contains(&error.code()), expected, shown(&error))?;
    }
    if matches!(fault, Fault::Refused(403 | 429)) {
        let expected = "an error that says nothing of class and instance: the cloud did not answer";
        ensure(!is_final(&error), expected, shown(&error))?;
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
    if reads {
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
        let cases = |requests, faults: &Faults| {
            let clean = vec!["GET /a".to_owned(); requests];
            Cases::of("create", &ALL, true, clean, faults).unwrap().all
        };
        assert_eq!(cases(3, &faults(0, None)).len(), 3 * ALL.len());
        let large = |seed| cases(50, &faults(seed, None));
        assert_eq!(large(1).len(), MOST_CASES);
        assert_eq!(large(1), large(1));
        assert_ne!(large(1), large(2));
        assert_eq!(cases(3, &faults(0, Some("create 2 lost"))), [(2, Fault::Lost)]);
        assert_eq!(cases(3, &faults(0, Some("delete 2 lost"))), []);
        let lags = Faults { list_lag: Some(Duration::from_secs(2)), ..Faults::default() };
        assert!(cases(2, &lags).contains(&(2, Fault::Stale)));
        assert!(Cases::of("create", &ALL, true, Vec::new(), &lags).is_err());
    }
}
