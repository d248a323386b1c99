//! What follows from a failure: one table, verb by code.

use std::time::Duration;

use ostler_api::{
    driver::{ErrorCode, OperationKind, reason},
    machine::{FailureReason, Retry, WaitReason},
};

use super::pass::{Pass, Turn, after};
use crate::{
    operation::Failure,
    snapshot::{ClassView, SecretView},
};

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// Try again after `first`, then twice as long each time, at most `max`.
    Backoff {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Try again when the class changes.
    OnClassChange,
    /// As a backoff, and at once when the secret changes.
    OnSecretChange {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Try again when the driver said, or after the time set for exhausted resources.
    WhenThereIsRoom,
    /// The Machine is lost.
    GiveUp(FailureReason),
    /// As good as success for this verb.
    Accept,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What to do.
    pub then: Move,
    /// What the wait is called.
    pub reason: WaitReason,
}

const fn seconds(first: u64, max: u64) -> Move {
    Move::Backoff { first: Duration::from_secs(first), max: Duration::from_secs(max) }
}

const fn rule_of(then: Move, reason: WaitReason) -> Rule {
    Rule { then, reason }
}

/// The table. A verb is one of the four that change an instance, or a read of one.
pub fn rule(kind: OperationKind, code: ErrorCode) -> Rule {
    use ErrorCode as C;
    use OperationKind as K;
    use WaitReason as W;

    match (kind, code) {
        (K::DeleteMachine, C::NotFound) | (K::InitializeMachine, C::Unimplemented) => {
            rule_of(Move::Accept, W::DriverRetry)
        }
        (K::CreateMachine, C::AlreadyExists) => {
            rule_of(Move::GiveUp(FailureReason::InstanceConflict), W::Failed)
        }
        (K::CreateMachine | K::InitializeMachine, C::DataLoss) => {
            rule_of(Move::GiveUp(FailureReason::DataLoss), W::Failed)
        }
        (K::CreateMachine | K::UpdateMachine, C::InvalidArgument)
        | (K::CreateMachine, C::OutOfRange) => rule_of(Move::OnClassChange, W::InvalidSpec),
        (_, C::ResourceExhausted) => rule_of(Move::WhenThereIsRoom, W::CapacityExhausted),
        (K::InitializeMachine, _) => rule_of(seconds(5, 180), W::InstanceNotInitialized),
        (_, C::Unknown | C::Canceled | C::DeadlineExceeded | C::Uninitialized) => {
            rule_of(seconds(5, 180), W::DriverRetry)
        }
        (_, C::Unavailable) => rule_of(seconds(5, 120), W::DriverRetry),
        (_, C::Aborted) => rule_of(seconds(5, 15), W::DriverRetry),
        (_, C::PermissionDenied | C::Unauthenticated) => rule_of(
            Move::OnSecretChange { first: Duration::from_mins(3), max: Duration::from_mins(30) },
            W::CredentialsRefused,
        ),
        (_, C::FailedPrecondition) => rule_of(seconds(30, 600), W::ActionNeeded),
        (K::GetMachineStatus, C::OutOfRange) => rule_of(seconds(60, 600), W::SeveralInstances),
        (K::UpdateMachine, C::NotFound) => rule_of(seconds(60, 600), W::InstanceMissing),
        (_, C::Unimplemented) => rule_of(seconds(60, 600), W::DriverLacksVerb),
        (_, C::InvalidArgument) => rule_of(seconds(60, 600), W::InvalidSpec),
        (_, C::Internal | C::NotFound | C::AlreadyExists | C::OutOfRange | C::DataLoss) => {
            rule_of(seconds(60, 600), W::DriverRetry)
        }
    }
}

/// Writes down that an operation failed and when to try again. `None`: by the table it did not
/// fail, or the Machine is lost; see the rule.
pub(crate) fn remember(pass: &mut Pass<'_>, kind: OperationKind, failure: &Failure) -> Rule {
    let mut rule = rule(kind, failure.code);
    if is_loss_of_session(failure) {
        // The infrastructure refused nothing: go on as soon as a driver is there again.
        rule = rule_of(seconds(1, 60), WaitReason::DriverRetry);
    }
    let failures = pass
        .status
        .retry
        .as_ref()
        .filter(|retry| retry.kind == kind.into())
        .map_or(1, |retry| retry.failures.saturating_add(1));
    if let Some(not_before) = not_before(pass, &rule.then, failure, failures) {
        pass.status.retry = Some(Retry {
            kind: kind.into(),
            code: failure.code.name().to_owned(),
            reason: rule.reason.clone(),
            message: Some(failure.text()).filter(|text| !text.is_empty()),
            failures,
            not_before: not_before.map(Into::into),
            class_revision: class_revision(pass),
            secret_revision: secret_revision(pass),
        });
    }
    rule
}

/// Whether the core itself says that no driver was there to answer.
pub(crate) fn is_loss_of_session(failure: &Failure) -> bool {
    matches!(failure.reason.as_str(), reason::CORE_NO_SESSION | reason::CORE_SESSION_LOST)
}

/// `None`: no retry. `Some(None)`: no time for it.
#[expect(clippy::option_option, reason = "no retry and a retry without a time are two things")]
fn not_before(
    pass: &Pass<'_>,
    then: &Move,
    failure: &Failure,
    failures: i32,
) -> Option<Option<jiff::Timestamp>> {
    let wait = match then {
        Move::GiveUp(_) | Move::Accept => return None,
        Move::OnClassChange => return Some(None),
        Move::WhenThereIsRoom => {
            failure.retry_after.unwrap_or(pass.snap.settings.resource_exhausted_retry)
        }
        Move::Backoff { first, max } | Move::OnSecretChange { first, max } => {
            failure.retry_after.unwrap_or_else(|| backoff(*first, *max, failures))
        }
    };
    Some(Some(after(pass.snap.now, wait)))
}

/// `first`, doubled for each failure after the first, at most `max`.
fn backoff(first: Duration, max: Duration, failures: i32) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(20);
    first.saturating_mul(1_u32 << doublings).min(max)
}

/// A wait that is not over yet, as a turn; `None`: go on. A wait ends by its time, and at once when
/// the class or the secret is another one than it failed with.
pub(crate) fn gate(pass: &mut Pass<'_>) -> Option<Turn> {
    let retry = pass.status.retry.clone()?;
    let changed = |then: &Option<String>, now: Option<String>| {
        then.is_some() && now.is_some() && *then != now
    };
    if changed(&retry.class_revision, class_revision(pass))
        || changed(&retry.secret_revision, secret_revision(pass))
    {
        pass.status.retry = None;
        return None;
    }
    let until = retry.not_before.map(|time| time.0);
    if until.is_some_and(|until| pass.snap.now >= until) {
        return None;
    }
    Some(pass.wait(retry.reason, retry.message, until))
}

fn class_revision(pass: &Pass<'_>) -> Option<String> {
    match &pass.snap.class {
        ClassView::Known(class) => Some(class.revision.clone()),
        ClassView::Unknown | ClassView::Missing | ClassView::NamespaceDenied => None,
    }
}

fn secret_revision(pass: &Pass<'_>) -> Option<String> {
    match &pass.snap.secret {
        SecretView::Known(secret) => Some(secret.revision.clone()),
        SecretView::Unknown
        | SecretView::NotReferenced
        | SecretView::Missing(_)
        | SecretView::NamespaceDenied(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERBS: [OperationKind; 5] = [
        OperationKind::CreateMachine,
        OperationKind::InitializeMachine,
        OperationKind::UpdateMachine,
        OperationKind::DeleteMachine,
        OperationKind::GetMachineStatus,
    ];

    #[test]
    fn a_delete_that_finds_nothing_is_a_success_and_nothing_else_is() {
        for code in ErrorCode::ALL {
            let accepted = rule(OperationKind::DeleteMachine, code).then == Move::Accept;
            assert_eq!(accepted, code == ErrorCode::NotFound, "{code}");
        }
    }

    #[test]
    fn a_driver_without_initialize_has_nothing_to_initialize() {
        let rule = rule(OperationKind::InitializeMachine, ErrorCode::Unimplemented);
        assert_eq!(rule.then, Move::Accept);
    }

    #[test]
    fn initialization_is_tried_again_soon_whatever_the_code() {
        for code in ErrorCode::ALL {
            let rule = rule(OperationKind::InitializeMachine, code);
            if let Move::Backoff { first, max } = rule.then {
                assert_eq!((first.as_secs(), max.as_secs()), (5, 180), "{code}");
            }
        }
    }

    #[test]
    fn only_create_and_initialize_ever_give_a_machine_up() {
        for verb in VERBS {
            for code in ErrorCode::ALL {
                if matches!(rule(verb, code).then, Move::GiveUp(_)) {
                    assert!(
                        matches!(
                            verb,
                            OperationKind::CreateMachine | OperationKind::InitializeMachine
                        ),
                        "{verb} {code}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_refused_spec_waits_for_another_class_and_refused_credentials_for_another_secret() {
        let spec = rule(OperationKind::CreateMachine, ErrorCode::InvalidArgument);
        assert_eq!(spec, rule_of(Move::OnClassChange, WaitReason::InvalidSpec));
        for verb in [OperationKind::CreateMachine, OperationKind::DeleteMachine] {
            let credentials = rule(verb, ErrorCode::Unauthenticated);
            assert!(matches!(credentials.then, Move::OnSecretChange { .. }));
            assert_eq!(credentials.reason, WaitReason::CredentialsRefused);
        }
    }

    #[test]
    fn a_backoff_doubles_up_to_its_limit() {
        let (first, max) = (Duration::from_secs(5), Duration::from_mins(3));
        let waits: Vec<_> = (1..8).map(|n| backoff(first, max, n).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 180]);
        assert_eq!(backoff(first, max, i32::MAX), max);
    }
}
