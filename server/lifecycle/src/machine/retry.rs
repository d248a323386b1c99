//! The wait of a Machine for the next attempt.

use ostler_api::ProviderId;
use ostler_api::Revision;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    driver::{ErrorCode, OperationKind},
    machine::{Retry, WaitReason},
};

use super::{
    bootstrapping, cluster_id,
    pass::Pass,
    transition::{Outcome, Transition, wait},
};
pub(crate) use crate::retry::{MOST_LOSSES, RetryAction, is_loss_of_session, rule, rule_for};
use crate::{
    operation::Failure,
    plan::Next,
    retry::{Precondition, Rule, is_over},
    snapshot::{ClassView, DriverView, SecretView},
    time::after,
};

/// Writes down that an operation failed and when to try again. `None`: by the table it did not
/// fail, or the Machine is lost; see the rule.
pub(crate) fn remember(pass: &mut Pass<'_>, kind: OperationKind, failure: &Failure) -> Rule {
    let failures = pass
        .status
        .retry
        .as_ref()
        .filter(|retry| retry.kind == kind.into())
        .map_or(1, |retry| retry.failures.saturating_add(1));
    remember_times(pass, kind, failure, failures)
}

/// Writes down that an operation failed for so many times in a row.
pub(crate) fn remember_times(
    pass: &mut Pass<'_>,
    kind: OperationKind,
    failure: &Failure,
    failures: i32,
) -> Rule {
    let rule = rule_for(kind, failure);
    if rule.reason == WaitReason::ClusterIdChanged {
        cluster_id::record_stranger(pass, failure);
    }
    if let Some(not_before) = not_before(pass, &rule.then, failure, failures) {
        let since = Some(since(pass, kind, &rule.reason));
        pass.status.retry = Some(Retry {
            kind: kind.into(),
            code: failure.code.name().to_owned(),
            reason: rule.reason.clone(),
            message: Some(failure.text()).filter(|text| !text.is_empty()),
            failures,
            since,
            not_before: not_before.map(Into::into),
            class_revision: class_revision(pass),
            secret_revision: secret_revision(pass),
            driver_process: faulty_process(pass, failure),
            provider_id: not_ours(pass, failure),
        });
    }
    rule
}

/// A mutation failed. If its outcome is unknown, the intent stays: a read decides.
pub(crate) fn remember_mutation(
    pass: &mut Pass<'_>,
    kind: OperationKind,
    failure: &Failure,
) -> Rule {
    let intent = pass.end_operation();
    let rule = if pass.is_over() && kind != OperationKind::DeleteMachine {
        rule_for(kind, failure)
    } else {
        remember(pass, kind, failure)
    };
    if rule.first == Precondition::Read {
        pass.end_unknown(intent);
    }
    rule
}

/// Nothing is tried again.
pub(crate) fn clear(pass: &mut Pass<'_>) {
    pass.status.retry = None;
}

/// Writes down that a verb is tried again at this time, whatever changes before.
pub(crate) fn wait_until<'p>(
    pass: &'p mut Pass<'_>,
    kind: OperationKind,
    code: ErrorCode,
    reason: WaitReason,
    message: &str,
    until: Timestamp,
) -> &'p mut Retry {
    let since = Some(since(pass, kind, &reason));
    pass.status.retry.insert(Retry {
        kind: kind.into(),
        code: code.name().to_owned(),
        reason,
        message: Some(message.to_owned()),
        failures: 1,
        since,
        not_before: Some(until.into()),
        class_revision: None,
        secret_revision: None,
        driver_process: None,
        provider_id: None,
    })
}

/// Since when a verb fails for this reason, each time.
fn since(pass: &Pass<'_>, kind: OperationKind, reason: &WaitReason) -> Time {
    let before = pass.status.retry.as_ref();
    let before = before.filter(|it| it.kind == kind.into() && it.reason == *reason);
    before.and_then(|it| it.since.clone()).unwrap_or_else(|| pass.now())
}

/// The instance that is not ours. A driver that names no instance means the requested one.
fn not_ours(pass: &Pass<'_>, failure: &Failure) -> Option<ProviderId> {
    let said = failure.stranger.as_ref().map(|it| &it.provider_id);
    let said = said.filter(|id| !id.is_empty());
    failure.is_not_ours().then(|| said.or_else(|| pass.provider_id()).cloned())?
}

/// `None`: no retry. `Some(None)`: no time for it.
#[expect(clippy::option_option, reason = "no retry and a retry without a time are two things")]
fn not_before(
    pass: &Pass<'_>,
    then: &RetryAction,
    failure: &Failure,
    failures: i32,
) -> Option<Option<Timestamp>> {
    let wait = then.wait(failures, pass.snap.settings.resource_exhausted_retry);
    let at = wait.map(|wait| after(pass.snap.now, failure.retry_after.unwrap_or(wait)));
    if *then == RetryAction::OnClassChange { Some(None) } else { at.map(Some) }
}

/// A read failed: writes that down, and waits for the next attempt.
pub(crate) fn after_read(pass: &mut Pass<'_>, failure: &Failure) -> Transition {
    remember(pass, OperationKind::GetMachineStatus, failure);
    gate(pass).err().unwrap_or(Transition::Rest(Next::OnChange))
}

/// Goes on unless a wait is not over yet. The wait ends by its time, and immediately when the class or the secret
/// differs from the failed one, when the operator named the cluster id, or when another process of the driver is there
/// after a fault of the last process.
pub(crate) fn gate(pass: &mut Pass<'_>) -> Outcome<()> {
    let Some(retry) = pass.status.retry.clone() else { return Ok(()) };
    let changed = |then: &Option<Revision>, now: Option<Revision>| {
        then.is_some() && now.is_some() && *then != now
    };
    let carried = pass.status.instance_cluster_id.as_deref();
    let known = retry.reason == WaitReason::ClusterIdChanged
        && carried.is_some_and(|id| pass.snap.cluster.has(id));
    if known
        || changed(&retry.class_revision, class_revision(pass))
        || changed(&retry.secret_revision, secret_revision(pass))
    {
        clear(pass);
        return Ok(());
    }
    if retry.driver_process.is_some()
        && process(pass).is_some_and(|now| Some(now) != retry.driver_process.as_deref())
    {
        // It may be no better: it fails for the next time, and not for the first.
        return Ok(());
    }
    let until = retry.not_before.as_ref().map(|time| time.0);
    let room = pass.snap.settings.resource_exhausted_retry;
    if until.is_some_and(|until| is_over(until, pass.snap.now, room)) {
        return Ok(());
    }
    let message = with_advice(pass, &retry);
    Err(wait(retry.reason, message, until).lasting_since(retry.since))
}

fn process<'a>(pass: &Pass<'a>) -> Option<&'a str> {
    let DriverView::Ready(driver) = &pass.snap.driver else { return None };
    Some(driver.process.as_str()).filter(|process| !process.is_empty())
}

/// The failed driver process, if the fault is the driver's own, and a next process may contain the author's fix.
fn faulty_process(pass: &Pass<'_>, failure: &Failure) -> Option<String> {
    let own = matches!(failure.code, ErrorCode::Internal | ErrorCode::Unimplemented);
    process(pass).filter(|_| own).map(str::to_owned)
}

/// The driver's message and, where only a user can help, advice.
fn with_advice(pass: &Pass<'_>, retry: &Retry) -> Option<String> {
    if retry.reason != WaitReason::CredentialsRefused {
        return retry.message.clone();
    }
    let advice = match (&pass.snap.class, &pass.snap.secret) {
        (ClassView::LastKnown(class), _) => {
            format!(
                "machine class {} was deleted: create it again, with a secret that works",
                class.name
            )
        }
        (ClassView::Known(_), SecretView::LastKnown(_, missing)) => {
            format!(
                "secret {} was deleted: create it again, with credentials that work",
                missing.join(", ")
            )
        }
        (ClassView::Known(class), _) if !class.secrets.is_empty() => {
            format!(
                "fix secret {}; the operation is retried as soon as it changes",
                class.secrets.join(" or ")
            )
        }
        _ => return retry.message.clone(),
    };
    let said = retry.message.as_deref().unwrap_or("the driver refused the credentials");
    Some(format!("{said}; {advice}"))
}

fn class_revision(pass: &Pass<'_>) -> Option<Revision> {
    let (ClassView::Known(class) | ClassView::LastKnown(class)) = &pass.snap.class else {
        return None;
    };
    Some(class.revision.clone())
}

/// Of the secrets of the class, and of the data that the Machine has instead of theirs.
fn secret_revision(pass: &Pass<'_>) -> Option<Revision> {
    let of_class = pass.snap.secret.revision().cloned();
    let Some(own) = bootstrapping::revision(pass.snap) else { return of_class };
    Some(format!("{}/{own}", of_class.unwrap_or_default()).into())
}
