//! The outcome of a pool's last operation, and the operations waiting for their next attempt.
//!
//! After every operation the group is read again before any decision: the sizes are absolute, so whether an operation
//! of unknown outcome was carried out does not matter. The exception is an updated instance: the answer is complete.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    OperationId, ProviderId, SpecDigest,
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{Retry, WaitReason},
    machine_pool::{MachinePoolStatus, PoolHotUpdate, PoolIntent},
};

use super::{Facts, basis::Basis, bring::Bring};
use crate::{
    driver::DriverFacts,
    operation::{Dispatch, Failure, Finished, OperationView, PoolInstance, Success},
    retry::{RetryAction, backoff, is_over, rule},
    time::{after, second_after},
};

/// Most instances deleted by one operation.
pub const BURST: usize = 50;

/// Most instances that could not be deleted and are remembered: more than one operation names. Instances beyond the
/// limit wait together, and all named deletions with them.
const MOST_REFUSED: usize = BURST + 10;
/// So many instances whose update failed, or is not finished, hold up all others.
const MOST_FAILING: usize = 3;
/// The first and the longest wait before the driver is asked again for an instance that it could not delete, or for
/// work that it claimed to have done, as the contract has it.
const REFUSED_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(3));

/// When a verb is tried again for which the table has no time.
const LATER: Duration = Duration::from_mins(1);

/// Where the operation of a pool stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Progress {
    /// The remaining intent.
    pub(super) intent: Option<PoolIntent>,
    /// A retry for each verb that failed last, and for each instance with such a failure.
    pub(super) retries: Vec<Retry>,
    /// The group.
    pub(super) provider_id: Option<ProviderId>,
    /// Digest of the group's user data, as far as known.
    pub(super) user_data: Option<SpecDigest>,
    /// The operation with its result in the standing.
    pub(super) acknowledge: Option<OperationId>,
    /// The group is to be read before anything is decided.
    pub(super) reread: bool,
    /// The instance that a driver has brought to a model just now.
    pub(super) updated: Option<ProviderId>,
    /// A driver works on it, or may.
    pub(super) busy: bool,
    /// The group was deleted.
    pub(super) deleted: bool,
    /// The failed operation, for people.
    pub(super) failure: Option<(OperationKind, String)>,
    /// The end of the last creation without a known result.
    pub(super) unconfirmed_since: Option<Time>,
    /// For how long the infrastructure may not show a new instance.
    list_lag: Duration,
    /// The driver's answers about updates of running instances.
    pub(super) hot: PoolHotUpdate,
    /// An instance that the driver cannot update as it runs, and why.
    pub(super) refusal: Option<(ProviderId, String)>,
}

/// Operations that wait for the next attempt.
#[derive(Debug, Default)]
pub(super) struct Held {
    kinds: Vec<OperationKind>,
    /// Instances whose update or deletion failed: others go on meanwhile.
    instances: Vec<(OperationKind, ProviderId)>,
    /// When the first of them is tried again.
    pub(super) next: Option<Timestamp>,
}

impl Held {
    /// The verb waits until that time as well.
    pub(super) fn until(&mut self, kind: OperationKind, until: Option<Timestamp>) {
        if until.is_some() {
            self.kinds.push(kind);
            self.next = self.next.into_iter().chain(until).min();
        }
    }

    /// Whether a verb waits, of this instance.
    pub(super) fn has(&self, kind: OperationKind, instance: Option<&ProviderId>) -> bool {
        let own = instance
            .is_some_and(|id| self.instances.iter().any(|(of, it)| *of == kind && it == id));
        let updates = OperationKind::UpdatePoolMachine;
        let failing = self.instances.iter().filter(|(of, _)| *of == updates).count();
        let all = kind == updates && instance.is_some() && failing >= MOST_FAILING;
        self.kinds.contains(&kind) || own || all
    }
}

impl Progress {
    /// Forgets all retries but those of these verbs, of updates of these instances, and of deletions of instances that
    /// may exist. `deletes`: instances are to be deleted.
    pub(super) fn forget_all_but(
        &mut self,
        kinds: &[OperationKind],
        updates: &[Bring],
        deletes: bool,
        may_be_there: impl Fn(&ProviderId) -> bool,
    ) {
        let deletion = OperationKind::DeletePoolMachines;
        self.retries.retain(|retry| {
            let kind = OperationKind::from_name(retry.kind.as_str());
            match (&retry.provider_id, kind) {
                (Some(id), Some(kind)) if kind == deletion => may_be_there(id),
                (None, Some(kind)) if kind == deletion => deletes,
                (id, Some(kind)) => {
                    let wanted = |id: &ProviderId| updates.iter().any(|it| it.id == *id);
                    kinds.contains(&kind) && id.as_ref().is_none_or(wanted)
                }
                (_, None) => false,
            }
        });
    }

    /// Instances that could not be deleted.
    pub(super) fn refused(&self) -> Vec<ProviderId> {
        let of_deletions =
            self.retries.iter().filter(|it| it.kind == OperationKind::DeletePoolMachines.into());
        of_deletions.filter_map(|it| it.provider_id.clone()).collect()
    }

    /// Whether the deletion of the instance failed.
    pub(super) fn is_refused(&self, id: &ProviderId) -> bool {
        let kind = OperationKind::DeletePoolMachines.into();
        self.retries.iter().any(|it| it.kind == kind && it.provider_id.as_ref() == Some(id))
    }

    /// Each instance that could not be deleted waits by itself: the others were, or are asked for now.
    fn not_deleted(
        &mut self,
        asked: &[ProviderId],
        failures: &[(ProviderId, Failure)],
        now: Timestamp,
    ) {
        let kind = OperationKind::DeletePoolMachines;
        self.forget(kind, None);
        let before: Vec<_> =
            failures.iter().map(|(id, _)| self.forget(kind, Some(id)).saturating_add(1)).collect();
        for id in asked {
            self.forget(kind, Some(id));
        }
        let mut room = MOST_REFUSED.saturating_sub(self.refused().len());
        for ((id, failure), failures) in failures.iter().zip(before) {
            let rule = rule(kind, failure.code, &failure.reason, failure.certainty);
            let is_strange = rule.reason == WaitReason::InstanceNotOurs;
            let (first, max) = if let RetryAction::Backoff { first, max } = rule.then
                && is_strange
            {
                (first, max)
            } else {
                REFUSED_AGAIN
            };
            let wait = failure.retry_after.unwrap_or_else(|| backoff(first, max, failures));
            // A single text is enough: the object of a pool stays small.
            let mut text = String::new();
            if self.failure.is_none() {
                text = format!("{id}: {}", failure.text());
                self.failure = Some((kind, text.clone()));
            }
            let again = retry(kind, failure, rule.reason, text, Some(after(now, wait)));
            let provider_id = (room > 0).then(|| id.clone());
            let is_last = room == 0;
            self.retries.push(Retry { failures, provider_id, ..again });
            if is_last {
                break;
            }
            room -= 1;
        }
    }

    /// Forgets the last failure of a verb, of this instance; how often it has failed.
    fn forget(&mut self, kind: OperationKind, instance: Option<&ProviderId>) -> i32 {
        let same = |it: &Retry| it.kind == kind.into() && it.provider_id.as_ref() == instance;
        let before = self.retries.iter().find(|it| same(it)).map_or(0, |it| it.failures);
        self.retries.retain(|it| !same(it));
        before
    }

    /// Whether this was carried out is unknown. A group that a creation may have made is looked for with the creation's
    /// class, so the class stays recorded until the group is found, or made anew.
    fn doubt(&mut self, intent: Option<PoolIntent>, now: Timestamp) {
        let creates =
            |it: &PoolIntent| it.intent.operation_kind() == Some(OperationKind::CreatePool);
        let intent = intent.filter(|it| creates(it) && self.provider_id.is_none());
        if intent.is_some() {
            self.unconfirmed_since = Some(Time(second_after(now)));
        }
        self.intent = intent.map(|mut it| {
            it.intent.outcome_unknown = true;
            it
        });
    }

    /// Until when "there is no group" proves nothing; `None`: it does.
    pub(super) fn shown_at(&self) -> Option<Timestamp> {
        let since = self.unconfirmed_since.as_ref().filter(|_| self.provider_id.is_none())?;
        Some(after(since.0, self.list_lag))
    }

    /// "There is none" is the answer to a deletion that was begun at this time.
    fn absent(&mut self, begun: Timestamp) {
        let Some(shown) = self.shown_at().filter(|shown| begun < *shown) else {
            self.deleted = true;
            return;
        };
        let text = format!(
            "the driver finds no group; what its last creation made is not known, and the infrastructure may not show it \
             yet: the driver is asked once more at {shown}"
        );
        let none = Failure::new(ErrorCode::NotFound, Certainty::NotApplied, &text);
        let (kind, reason) = (OperationKind::DeletePool, WaitReason::AbsenceUnconfirmed);
        // Of a group that goes, nothing else waits.
        self.retries = vec![retry(kind, &none, reason, text, Some(shown))];
    }

    /// The instance may have a part of the requested update.
    fn leave_unfinished(&mut self, instance: Option<ProviderId>) {
        let Some(instance) = instance else { return };
        if !self.hot.unfinished.contains(&instance) {
            self.hot.unfinished.push(instance);
        }
    }
}

/// The request: for an update of an instance, its id, the model and whether it was drained; for a named deletion, the
/// ids.
#[derive(Debug, Clone, Default)]
struct Asked {
    instance: Option<ProviderId>,
    deleted: Vec<ProviderId>,
    model: Option<SpecDigest>,
    drained: bool,
    /// When; `None`: nothing was asked.
    begun: Option<Timestamp>,
}

impl Asked {
    fn of(intent: Option<&PoolIntent>) -> Self {
        let Some(intent) = intent else { return Self::default() };
        let begun = intent.intent.started_at.as_ref().map(|time| time.0);
        match intent.intent.operation_kind() {
            Some(OperationKind::UpdatePoolMachine) => Self {
                instance: intent.provider_ids.first().cloned(),
                deleted: Vec::new(),
                model: intent.model_hash.clone(),
                drained: intent.drained,
                begun,
            },
            Some(OperationKind::DeletePoolMachines) => {
                Self { deleted: intent.provider_ids.clone(), begun, ..Self::default() }
            }
            _ => Self { begun, ..Self::default() },
        }
    }
}

/// Settles the operation from the sessions' view. `driver`: the connected driver.
pub(super) fn settle(
    status: &MachinePoolStatus,
    view: &OperationView,
    driver: Option<&DriverFacts>,
    basis: &Basis,
    now: Timestamp,
) -> Progress {
    let mut standing = Progress {
        intent: status.operation.clone(),
        retries: status.retries.clone(),
        provider_id: status.provider_id.clone(),
        user_data: status.user_data_hash.clone(),
        hot: status.hot_update.clone().unwrap_or_default(),
        unconfirmed_since: status.creation_unconfirmed_since.clone(),
        list_lag: DriverFacts::list_lag_of(driver),
        ..Progress::default()
    };
    match view {
        OperationView::InFlight(_) => standing.busy = true,
        OperationView::Expected(_) => standing.busy = standing.intent.is_some(),
        OperationView::Idle => match standing.intent.as_ref().map(|it| it.intent.outcome_unknown) {
            None | Some(true) => {}
            Some(false) if driver.is_none() => standing.busy = true,
            // The request was not sent, or was lost: a read decides.
            Some(false) => {
                let intent = standing.intent.take();
                standing.leave_unfinished(Asked::of(intent.as_ref()).instance);
                standing.doubt(intent, now);
                standing.reread = true;
            }
        },
        OperationView::Finished(finished) => {
            standing.acknowledge = Some(finished.id.clone());
            standing.reread = true;
            match standing.intent.take_if(|it| it.intent.id == finished.id) {
                Some(intent) => take(&mut standing, intent, finished, basis, now),
                None => pass_over(&mut standing, finished),
            }
        }
    }
    standing
}

/// Passes over an older operation, which was recorded or is not waited for. A group made by such an operation exists
/// all the same.
fn pass_over(standing: &mut Progress, finished: &Finished) {
    if let Ok(Success::PoolChanged(record)) = &finished.outcome {
        standing.provider_id.get_or_insert_with(|| record.provider_id.clone());
    }
}

fn take(
    standing: &mut Progress,
    intent: PoolIntent,
    finished: &Finished,
    basis: &Basis,
    now: Timestamp,
) {
    let asked = Asked::of(Some(&intent));
    let basis = &basis.sent_with(&intent);
    let kind = finished.kind;
    if matches!(finished.outcome, Ok(Success::PoolChanged(_))) {
        let sent = intent.user_data_hash.clone();
        standing.user_data = sent.or_else(|| standing.user_data.take());
    }
    match &finished.outcome {
        Ok(Success::PoolMachineUpdated(told)) if kind == OperationKind::UpdatePoolMachine => {
            updated(standing, &asked, told, basis, now);
        }
        Ok(success) => succeeded(standing, (kind, &asked), success, now),
        Err(failure) => {
            if failure.certainty != Certainty::NotApplied {
                standing.doubt(Some(intent), now);
            }
            failed(standing, (kind, &asked), failure, basis, now);
        }
    }
}

/// An answer about another instance or model is none.
fn updated(
    standing: &mut Progress,
    asked: &Asked,
    told: &PoolInstance,
    basis: &Basis,
    now: Timestamp,
) {
    let kind = OperationKind::UpdatePoolMachine;
    let same = asked.instance.as_ref() == Some(&told.instance.provider_id)
        && asked.model.as_ref().is_some_and(|it| it.as_str() == told.model_hash);
    if !same {
        return failed(standing, (kind, asked), &Failure::wrong_answer(), basis, now);
    }
    standing.reread = false;
    standing.updated.clone_from(&asked.instance);
    standing.forget(kind, asked.instance.as_ref());
    standing.hot.unfinished.retain(|id| Some(id) != asked.instance.as_ref());
}

fn succeeded(
    standing: &mut Progress,
    (kind, asked): (OperationKind, &Asked),
    success: &Success,
    now: Timestamp,
) {
    if kind != OperationKind::DeletePoolMachines {
        standing.retries.retain(|retry| retry.kind != kind.into());
    }
    match success {
        Success::PoolChanged(record) => standing.provider_id = Some(record.provider_id.clone()),
        Success::Deleted { was_absent } if kind == OperationKind::DeletePool => {
            if *was_absent {
                standing.absent(asked.begun.unwrap_or(now));
            } else {
                standing.deleted = true;
            }
        }
        Success::PoolMachinesDeleted { pool, not_deleted } => {
            standing.provider_id = Some(pool.provider_id.clone());
            standing.not_deleted(&asked.deleted, not_deleted, now);
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
    standing: &mut Progress,
    (kind, asked): (OperationKind, &Asked),
    failure: &Failure,
    basis: &Basis,
    now: Timestamp,
) {
    let rule = rule(kind, failure.code, &failure.reason, failure.certainty);
    let instance = asked.instance.as_ref();
    let failures = standing.forget(kind, instance).saturating_add(1);
    if rule.then == RetryAction::Accept {
        if kind == OperationKind::DeletePool {
            standing.absent(asked.begun.unwrap_or(now));
        }
        return;
    }
    match (&rule.then, instance) {
        (RetryAction::Refuse(_), Some(id)) if !asked.drained => {
            standing.refusal = Some((id.clone(), failure.text()));
            return;
        }
        (_, Some(id)) if failure.certainty != Certainty::NotApplied => {
            standing.leave_unfinished(Some(id.clone()));
        }
        _ => {}
    }
    // Another size than expected is no failure: the next read has it.
    if failure.code == ErrorCode::Aborted && failures < 3 {
        let again = retry(kind, failure, rule.reason, failure.text(), Some(now));
        standing.retries.push(Retry { failures, provider_id: asked.instance.clone(), ..again });
        return;
    }
    let until = (rule.then != RetryAction::OnClassChange).then(|| {
        let wait = rule.then.wait(failures, LATER).unwrap_or(LATER);
        after(now, failure.retry_after.unwrap_or(wait))
    });
    let text = format!("{}: {}", failure.code, failure.text());
    standing.failure = Some((kind, text.clone()));
    let again = Retry {
        failures,
        class_revision: basis.class.clone(),
        secret_revision: basis.rest.clone(),
        provider_id: asked.instance.clone(),
        ..retry(kind, failure, rule.reason, text, until)
    };
    standing.retries.push(again);
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
        since: None,
        not_before: until.map(Into::into),
        class_revision: None,
        secret_revision: None,
        driver_process: None,
        provider_id: None,
    }
}

/// Until when the operation waits, and why: the driver reported it done several times, and a read shows otherwise.
pub(super) fn unfounded(facts: &Facts<'_>, next: &Dispatch) -> Option<(Timestamp, String)> {
    let done = facts.done.filter(|it| it.key == next.idempotency_key && it.times > 1)?;
    let (first, max) = REFUSED_AGAIN;
    let until = after(done.at, backoff(first, max, done.times - 1));
    let (kind, times) = (next.kind(), done.times);
    let text = format!("the driver answered {kind} {times} times that it is done, and it is not");
    (until > facts.snap.now).then_some((until, text))
}

/// The waiting operations, with the time of the first new attempt.
pub(super) fn held(retries: &[Retry], basis: &Basis, now: Timestamp) -> Held {
    let waits = |retry: &&Retry| {
        let over = retry.not_before.as_ref().is_some_and(|until| is_over(until.0, now, LATER));
        !basis.differs(retry) && !over
    };
    let waiting: Vec<_> = retries.iter().filter(waits).collect();
    let next = waiting.iter().filter_map(|retry| retry.not_before.as_ref()).map(|it| it.0).min();
    let of_all = waiting.iter().filter(|retry| retry.provider_id.is_none());
    let kinds = of_all.filter_map(|retry| OperationKind::from_name(retry.kind.as_str())).collect();
    let of_one = |retry: &&Retry| {
        Some((OperationKind::from_name(retry.kind.as_str())?, retry.provider_id.clone()?))
    };
    let instances = waiting.iter().filter_map(of_one).collect();
    Held { kinds, instances, next }
}
