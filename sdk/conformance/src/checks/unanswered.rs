//! What a driver says when the infrastructure answers nothing, or refuses the credentials: never that there is none.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::{MachineErrorCode, MachineErrorReason, ObjectRevision, Operation, OperationError};

use crate::answer::{Answer, shown};
use crate::bench::Bench;
use crate::driver::Driver;
use crate::machine::{in_time, on_class};
use crate::outcome::{Outcome, ensure, failed};

pub(super) const MANUAL: &str = "driver.proto, \"Certainty\"; operation.proto, MachineErrorCode";
/// The infrastructure does not answer.
pub(super) const AWAY: bool = false;
/// The infrastructure refuses the credentials.
pub(super) const DENIED: bool = true;
/// An outage may be over in a second.
const LONGEST: Duration = Duration::from_mins(10);
/// For a driver that tries for as long as it may.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the infrastructure cannot be asked.
#[derive(Clone, Copy)]
pub(super) enum Trouble {
    Away,
    Denied,
}

impl Trouble {
    /// Takes the cloud away. The runner brings it back, whatever becomes of the check.
    pub(super) async fn away(bench: &Bench) -> Outcome<Self> {
        bench.break_cloud(Some(0)).await?;
        Ok(Self::Away)
    }

    /// Takes the cloud away or uses credentials that are refused.
    pub(super) async fn begin(bench: &Bench, denied: bool) -> Outcome<Self> {
        if !denied {
            return Self::away(bench).await;
        }
        bench.step("uses credentials that the infrastructure refuses");
        Ok(Self::Denied)
    }

    /// The same class, as it is asked for meanwhile.
    pub(super) fn class(self, bench: &Bench, class: &ObjectRevision) -> ObjectRevision {
        match self {
            Self::Away => class.clone(),
            Self::Denied => bench.denied(class),
        }
    }

    pub(super) async fn over(self, bench: &Bench) -> Outcome {
        match self {
            Self::Away => bench.break_cloud(None).await,
            Self::Denied => Ok(()),
        }
    }
}

/// Sends an operation once, with little time.
pub(super) async fn ask(driver: &Driver<'_>, operation: Operation) -> Outcome<Answer> {
    driver.ask_once(in_time(operation, driver.bench.scaled(PATIENCE))).await
}

/// The machine is absent, wrong or failed, or its class is wrong.
pub(super) fn is_final(error: &OperationError) -> bool {
    let code = matches!(
        error.code(),
        MachineErrorCode::NotFound
            | MachineErrorCode::InvalidArgument
            | MachineErrorCode::AlreadyExists
            | MachineErrorCode::OutOfRange
            | MachineErrorCode::DataLoss
            | MachineErrorCode::Unimplemented
    );
    let word = matches!(
        error.acts_by(),
        MachineErrorReason::NotOurs | MachineErrorReason::NotHotUpdatable
    );
    code || word
}

/// An error after which the core asks again: it does not take the machine for absent, wrong or failed.
pub(super) fn goes_on(answer: &Answer) -> Outcome<OperationError> {
    const EXPECTED: &str = "an error after which the core asks again, e.g. UNAVAILABLE";
    let error = answer.error(EXPECTED)?;
    ensure(!is_final(&error), EXPECTED, shown(&error))?;
    let wait = error.retry_after.and_then(|it| Duration::try_from(it).ok()).unwrap_or_default();
    // Libraries that know names alone have no other word for what they do not know.
    let defect = error.code() == MachineErrorCode::Internal && !answer.by_name;
    let quota = error.code() == MachineErrorCode::ResourceExhausted
        && error.acts_by() != MachineErrorReason::Throttled;
    ensure(
        wait <= LONGEST && !quota && !defect,
        "an error after which the core asks again soon: UNAVAILABLE, with a retry_after of minutes at most",
        format_args!("retry_after {wait:?}, {}", shown(&error)),
    )?;
    Ok(error)
}

/// What needs no cloud is answered as before; what needs it, with an error.
pub(super) async fn same_or_error(driver: &Driver<'_>, request: Request, denied: bool) -> Outcome {
    let bench = driver.bench;
    let of = |class: &ObjectRevision| on_class(class, bench.cluster_id(), request.clone());
    let before = driver.ask(of(&bench.class())).await?.result()?;
    let trouble = Trouble::begin(bench, denied).await?;
    let answer = ask(driver, of(&trouble.class(bench, &bench.class()))).await?;
    match answer.result() {
        Ok(same) if same == before => {}
        Ok(other) => {
            let expected = format!("{before:?} as before, or an error");
            return Err(failed(expected, format_args!("{other:?}")));
        }
        Err(_) => goes_on(&answer).map(drop)?,
    }
    trouble.over(bench).await
}
