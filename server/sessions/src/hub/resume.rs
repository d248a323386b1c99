//! A driver comes back with operations, or without its former ones.
//!
//! A driver's word grants nothing. An operation sent by this core is matched with the core's
//! memory: the same provider, principal and instance. An operation sent by an earlier core is
//! matched with the record that the earlier core made before sending, and only while the adoption
//! window is open.

use std::collections::{BTreeMap, BTreeSet};

use ostler_api::driver::OperationKind;
use ostler_api::operation::Lane;
use ostler_proto::v1alpha1::{
    HeldOperation, HeldState, HeldVerdict, Operation, ResumeOutcome, Verdict,
};
use tokio::time::Instant;

use super::operations::{Op, Owner, Place};
use super::pages::Pages;
use super::timers::Timer;
use super::{Hub, OperationId, SessionKey};
use crate::{RecordedOperation, SessionEvent, convert};

/// The core's ruling on a held operation.
enum Ruling {
    /// The operation was sent from here, and is wanted.
    Kept(Verdict),
    /// The operation was sent and recorded by an earlier core.
    Adopted,
    /// The operation is not waited for.
    Unwanted(Unwanted),
}

/// Why a held operation is not waited for, as the audit log calls it.
type Unwanted = &'static str;

impl Hub {
    /// Settles all operations that a session of this instance had in flight, or that the driver
    /// holds.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        key: SessionKey,
        mut held: Vec<HeldOperation>,
    ) -> (ResumeOutcome, Vec<HeldVerdict>) {
        if self.looks() {
            return (ResumeOutcome::Unspecified, Vec::new());
        }
        let mut away = self.take_lost(key);
        let mut outcome = ResumeOutcome::Fresh;
        if !away.is_empty() {
            outcome = ResumeOutcome::Resumed;
        }
        // Running operations go first: when both a running operation and a finished one claim a
        // target, the finished one is older and was recorded by the core that sent the other.
        held.sort_by_key(|operation| operation.state() != HeldState::Running);
        let mut verdicts = Vec::with_capacity(held.len());
        let mut unwanted = BTreeMap::new();
        let mut dismissed = Vec::new();
        for operation in held {
            away.remove(operation.operation_id.as_str());
            let completed = operation.state() == HeldState::Completed;
            let operation_id = operation.operation_id.clone();
            let class = operation.machine_class.clone();
            let verdict = match self.rule(now, key, operation) {
                Ruling::Kept(verdict) => {
                    if outcome == ResumeOutcome::Fresh {
                        outcome = ResumeOutcome::Resumed;
                    }
                    verdict
                }
                Ruling::Adopted => {
                    outcome = ResumeOutcome::Adopted;
                    Verdict::Keep
                }
                Ruling::Unwanted(why) => {
                    let (count, _) =
                        unwanted.entry(why).or_insert_with(|| (0, operation_id.clone()));
                    *count += 1;
                    if completed {
                        Verdict::Forget
                    } else {
                        dismissed.push((operation_id.clone().into(), class));
                        Verdict::Cancel
                    }
                }
            };
            verdicts.push(HeldVerdict { operation_id, verdict: verdict.into() });
        }
        for id in away {
            self.not_held(now, key, &id);
        }
        if let Some(session) = self.sessions.get_mut(&key) {
            session.dismissed = dismissed;
        }
        self.audit_unwanted(key, &unwanted);
        (outcome, verdicts)
    }

    /// A line for each reason, however many operations a driver lists.
    fn audit_unwanted(&self, key: SessionKey, unwanted: &BTreeMap<Unwanted, (usize, String)>) {
        let Some(session) = self.sessions.get(&key) else { return };
        for (outcome, (count, first)) in unwanted {
            tracing::info!(
                target: "ostler::audit",
                who = session.principal,
                from = session.peer,
                verb = "resume",
                object = session.driver.provider.as_str(),
                outcome,
                count,
                operation = %first.escape_debug(),
            );
        }
    }

    /// The operations that earlier sessions of the same instance left behind.
    fn take_lost(&mut self, key: SessionKey) -> BTreeSet<OperationId> {
        let Some(session) = self.sessions.get(&key) else { return BTreeSet::new() };
        let same = self.lost.iter().filter(|(_, lost)| {
            lost.provider == session.driver.provider
                && lost.instance_id == session.driver.instance_id
                && lost.principal == session.principal
        });
        let keys: Vec<SessionKey> = same.map(|(key, _)| *key).collect();
        let mut operations = BTreeSet::new();
        for key in keys {
            self.timers.clear(&Timer::Resume(key));
            operations.extend(self.lost.remove(&key).into_iter().flat_map(|it| it.operations));
        }
        operations
    }

    fn rule(&mut self, now: Instant, key: SessionKey, held: HeldOperation) -> Ruling {
        let id = held.operation_id.as_str();
        let Some((id, _)) = self.operations.get_key_value(id) else {
            if self.ended.contains(id) {
                return Ruling::Unwanted("ended");
            }
            return match self.recorded(key, &held) {
                Ok(recorded) => self.adopt(now, key, held.operation_id, recorded),
                Err(why) => Ruling::Unwanted(why),
            };
        };
        let id = id.clone();
        let known = self.sessions.get_mut(&key).zip(self.operations.get_mut(&id));
        let Some((session, operation)) = known else { return Ruling::Unwanted("unknown") };
        match &operation.place {
            // Its lost session was taken over above: only this instance can be meant.
            Place::Away(lost) if !self.lost.contains_key(lost) => {
                operation.place = Place::Sent(key);
                operation.accept();
                session.in_flight.insert(id.clone(), operation.kind);
                let cancelled = operation.cancelled;
                self.note_progress(now, &id);
                self.tell_loss(&id, false);
                Ruling::Kept(if cancelled { Verdict::Cancel } else { Verdict::Keep })
            }
            Place::Finished { holder, .. }
                if holder.as_ref() == Some(&session.driver.instance_id)
                    && operation.provider == session.driver.provider =>
            {
                Ruling::Kept(Verdict::Keep)
            }
            Place::Queued(_) | Place::Sent(_) | Place::Away(_) | Place::Finished { .. } => {
                Ruling::Unwanted("of another session")
            }
        }
    }

    /// The record of this operation by an earlier core, sent to a driver of this provider. Only the
    /// driver that got the operation knows the id.
    fn recorded(
        &self,
        key: SessionKey,
        held: &HeldOperation,
    ) -> Result<RecordedOperation, Unwanted> {
        if !self.adoption_open() {
            return Err("after the adoption window");
        }
        let uid = held.target.as_ref().map(|target| target.uid.as_str()).unwrap_or_default();
        if uid.is_empty() || self.slots.contains_key(uid) {
            return Err("target has another operation");
        }
        let recorded = self.records.find(uid).ok_or("nothing recorded")?;
        let session = self.sessions.get(&key).ok_or("unknown")?;
        if self.options.canonical(recorded.provider.as_str()) != session.driver.provider {
            return Err("target of another provider");
        }
        if recorded.term >= self.term() {
            return Err("not of an earlier term");
        }
        let same = recorded.operation_id.as_str() == held.operation_id
            && recorded.kind.is_mutation()
            && OperationKind::from_number(held.kind) == Some(recorded.kind)
            && recorded.idempotency_key == held.idempotency_key
            && recorded.target.uid == uid;
        if same { Ok(recorded) } else { Err("not what was recorded") }
    }

    /// Takes over an operation of an earlier life of the core, or of another one: with the target
    /// and the class that are written down, whatever the driver says of them.
    fn adopt(
        &mut self,
        now: Instant,
        key: SessionKey,
        operation_id: String,
        recorded: RecordedOperation,
    ) -> Ruling {
        let Some(session) = self.sessions.get_mut(&key) else { return Ruling::Unwanted("unknown") };
        if self.slots.len() >= self.options.limits.targets {
            return Ruling::Unwanted("too many targets");
        }
        let RecordedOperation { kind, idempotency_key, target, class, .. } = recorded;
        tracing::info!(
            target: "ostler::audit",
            who = session.principal,
            from = session.peer,
            verb = "resume",
            object = format!("machines/{}/{}", target.namespace, target.name),
            outcome = "adopted",
            operation = operation_id,
            %kind,
        );
        let id: OperationId = operation_id.into();
        let provider = session.driver.provider.clone();
        session.in_flight.insert(id.clone(), kind);
        let target_uid = target.uid.clone();
        self.slots.insert(target_uid.clone(), id.clone());
        let mut request = Box::new(Operation {
            idempotency_key,
            target: Some(convert::target(target)),
            machine_class: Some(convert::reference(class)),
            delivery: 1,
            ..Operation::default()
        });
        request.traceparent = self.traceparent(id.as_str(), kind, &request);
        let op = Op {
            kind,
            provider,
            volumes: Vec::new(),
            pinned: None,
            since: now,
            placed: now,
            timeout: self.options.timing.adopted,
            ends: now + self.options.timing.adopted,
            accept_by: None,
            lane: Lane::User,
            owner: Owner::Target,
            place: Place::Sent(key),
            request,
            bytes: 0,
            pages: Pages::default(),
            progress: None,
            interval: None,
            stalled: false,
            reported: None,
            cancelled: false,
            missed: 0,
        };
        self.timers.set(Timer::Operation(id.clone()), op.ends);
        let operation_id = id.clone();
        self.operations.insert(id, Box::new(op));
        self.publish(SessionEvent::Adopted { target_uid, operation_id });
        Ruling::Adopted
    }

    /// The driver does not have an operation that was sent to it. If the driver keeps operations
    /// over a loss, and it is the process of the lost session, the operation never arrived and goes
    /// to the session that is active now.
    fn not_held(&mut self, now: Instant, key: SessionKey, id: &OperationId) {
        let driver = self.sessions.get(&key).map(|session| &session.driver);
        let retains = driver.is_some_and(|driver| {
            driver.retains && driver.lost.as_ref().is_some_and(|lost| !lost.is_empty())
        });
        let Some(operation) = self.operations.get(id) else { return };
        if retains && !operation.accepted() {
            self.queue_again(now, id);
            let operation = self.operations.get(id);
            if operation.is_some_and(|it| matches!(it.place, Place::Queued(_))) {
                self.tell_loss(id, false);
            }
        } else {
            self.fail_lost(now, id);
        }
    }
}
