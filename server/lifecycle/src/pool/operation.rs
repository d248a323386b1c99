//! What became of the last operation of a pool, and what waits for its next attempt.
//!
//! After every operation the group is read again before anything is decided: the sizes are absolute, so it does not
//! matter whether one whose outcome is unknown was carried out.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{
    OperationId, ProviderId, Revision,
    driver::{ErrorCode, OperationKind},
    machine::{Retry, WaitReason},
    machine_pool::{MachinePoolStatus, PoolIntent},
};

use crate::{
    machine::{RetryAction, backoff, rule},
    operation::{Failure, Finished, OperationView, Success},
    time::after,
};

/// Most instances that could not be deleted and are remembered.
const MOST_REFUSED: usize = 20;
/// How soon instances are asked for again that could not be deleted.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// Where the operation of a pool stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Standing {
    /// The intent that stays.
    pub(super) intent: Option<PoolIntent>,
    /// One for each verb that failed last.
    pub(super) retries: Vec<Retry>,
    /// The group.
    pub(super) provider_id: Option<ProviderId>,
    /// Instances that could not be deleted.
    pub(super) refused: Vec<ProviderId>,
    /// Its result is in here.
    pub(super) acknowledge: Option<OperationId>,
    /// The group is to be read before anything is decided.
    pub(super) reread: bool,
    /// A driver works on it, or may.
    pub(super) busy: bool,
    /// The group was deleted.
    pub(super) deleted: bool,
    /// What failed, for people.
    pub(super) failure: Option<(OperationKind, String)>,
}

impl Standing {
    /// What waits for its next attempt, of these verbs alone. Instances that could not be deleted are wanted as long as
    /// they are there.
    pub(super) fn forget_all_but(&mut self, kinds: &[OperationKind]) {
        let deletes = OperationKind::DeletePoolMachines;
        self.retries.retain(|retry| {
            let kind = OperationKind::from_name(retry.kind.as_str());
            kind == Some(deletes) || kind.is_some_and(|kind| kinds.contains(&kind))
        });
    }
}

/// Takes what the sessions say. `is_ready`: a driver is there.
pub(super) fn settle(
    status: &MachinePoolStatus,
    view: &OperationView,
    is_ready: bool,
    class: Option<&Revision>,
    now: Timestamp,
) -> Standing {
    let mut standing = Standing {
        intent: status.operation.clone(),
        retries: status.retries.clone(),
        provider_id: status.provider_id.clone(),
        refused: status.not_deleted.clone(),
        ..Standing::default()
    };
    match view {
        OperationView::InFlight(_) => standing.busy = true,
        OperationView::Expected(_) => standing.busy = standing.intent.is_some(),
        // It was not sent, or it was lost: which of both, a read says.
        OperationView::Idle if standing.intent.is_some() => {
            standing.busy = !is_ready;
            if is_ready {
                standing.intent = None;
                standing.reread = true;
            }
        }
        OperationView::Idle => {}
        OperationView::Finished(finished) => take(&mut standing, finished, class, now),
    }
    standing
}

fn take(standing: &mut Standing, finished: &Finished, class: Option<&Revision>, now: Timestamp) {
    standing.acknowledge = Some(finished.id.clone());
    standing.intent = None;
    standing.reread = true;
    let kind = finished.kind;
    match &finished.outcome {
        Ok(success) => succeeded(standing, kind, success, now),
        Err(failure) => failed(standing, kind, failure, class, now),
    }
}

fn succeeded(standing: &mut Standing, kind: OperationKind, success: &Success, now: Timestamp) {
    standing.retries.retain(|retry| retry.kind != kind.into());
    match success {
        Success::PoolChanged(record) => standing.provider_id = Some(record.provider_id.clone()),
        Success::Deleted { .. } if kind == OperationKind::DeletePool => standing.deleted = true,
        Success::PoolMachinesDeleted { pool, not_deleted } => {
            standing.provider_id = Some(pool.provider_id.clone());
            let ids = not_deleted.iter().map(|(id, _)| id.clone());
            standing.refused = ids.take(MOST_REFUSED).collect();
            if let Some((id, failure)) = not_deleted.first() {
                let text = format!("{id}: {}", failure.text());
                standing.failure = Some((kind, text.clone()));
                let until = after(now, REFUSED_AGAIN);
                standing.retries.push(retry(
                    kind,
                    failure,
                    WaitReason::DriverRetry,
                    text,
                    Some(until),
                ));
            }
        }
        Success::Created(_)
        | Success::Initialized(_)
        | Success::Updated { .. }
        | Success::Deleted { .. }
        | Success::Read(_)
        | Success::VolumeIds(_)
        | Success::Listed { .. }
        | Success::Reviewed(_)
        | Success::PoolRead { .. }
        | Success::PoolsListed { .. }
        | Success::PoolMachineUpdated(_) => {}
    }
}

fn failed(
    standing: &mut Standing,
    kind: OperationKind,
    failure: &Failure,
    class: Option<&Revision>,
    now: Timestamp,
) {
    let rule = rule(kind, failure.code, &failure.reason, failure.certainty);
    let before = standing.retries.iter().find(|retry| retry.kind == kind.into());
    let failures = before.map_or(1, |retry| retry.failures.saturating_add(1));
    standing.retries.retain(|retry| retry.kind != kind.into());
    if rule.then == RetryAction::Accept {
        standing.deleted = kind == OperationKind::DeletePool;
        return;
    }
    // Another size than expected is no failure: the next read has it.
    if failure.code == ErrorCode::Aborted && failures < 3 {
        let mut again = retry(kind, failure, rule.reason, failure.text(), Some(now));
        again.failures = failures;
        standing.retries.push(again);
        return;
    }
    let until = match rule.then {
        RetryAction::OnClassChange => None,
        RetryAction::Backoff { first, max }
        | RetryAction::OnSecretChange { first, max }
        | RetryAction::LookAgain { first, max } => {
            Some(after(now, failure.retry_after.unwrap_or_else(|| backoff(first, max, failures))))
        }
        RetryAction::WhenThereIsRoom
        | RetryAction::GiveUp(_)
        | RetryAction::Accept
        | RetryAction::Refuse(_)
        | RetryAction::Absent
        | RetryAction::NotInitialized
        | RetryAction::GoOn => {
            Some(after(now, failure.retry_after.unwrap_or(Duration::from_mins(1))))
        }
    };
    let text = format!("{}: {}", failure.code, failure.text());
    standing.failure = Some((kind, text.clone()));
    let class_revision = class.cloned();
    let again = retry(kind, failure, rule.reason, text, until);
    standing.retries.push(Retry { failures, class_revision, ..again });
}

fn retry(
    kind: OperationKind,
    failure: &Failure,
    reason: WaitReason,
    text: String,
    until: Option<Timestamp>,
) -> Retry {
    Retry {
        kind: kind.into(),
        code: failure.code.name().to_owned(),
        reason,
        message: Some(text).filter(|text| !text.is_empty()),
        failures: 1,
        not_before: until.map(Into::into),
        class_revision: None,
        secret_revision: None,
        provider_id: None,
    }
}

/// The verbs that wait, and when the first of them is tried again.
pub(super) fn held(
    retries: &[Retry],
    class: Option<&Revision>,
    now: Timestamp,
) -> (Vec<OperationKind>, Option<Timestamp>) {
    let waits = |retry: &&Retry| {
        let changed = retry.class_revision.is_some() && retry.class_revision.as_ref() != class;
        let over = retry.not_before.as_ref().is_some_and(|until| until.0 <= now);
        !changed && !over
    };
    let waiting: Vec<_> = retries.iter().filter(waits).collect();
    let next = waiting.iter().filter_map(|retry| retry.not_before.as_ref()).map(|it| it.0).min();
    let kinds = waiting.iter().filter_map(|retry| OperationKind::from_name(retry.kind.as_str()));
    (kinds.collect(), next)
}
