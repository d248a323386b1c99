//! A driver comes back with operations, or without those it had.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_api::driver::OperationKind;
use ostler_proto::v1alpha1::{HeldOperation, HeldState, HeldVerdict, ResumeOutcome, Verdict};
use tokio::time::Instant;

use super::operations::{Op, Owner, Place};
use super::pages::Pages;
use super::timers::Timer;
use super::{Hub, OpId, SessionKey};
use crate::{Lane, SessionEvent};

/// What the core makes of a held operation.
enum Ruling {
    /// It was sent from here, and is wanted.
    Kept(Verdict),
    /// It was not known, and is now.
    Adopted,
    /// Nobody waits for it.
    Unwanted,
}

impl Hub {
    /// Settles everything that a session of this instance had in flight, and everything that the
    /// driver holds.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        key: SessionKey,
        mut held: Vec<HeldOperation>,
    ) -> (ResumeOutcome, Vec<HeldVerdict>) {
        let mut away = self.take_lost(key);
        let mut outcome = ResumeOutcome::Fresh;
        if !away.is_empty() {
            outcome = ResumeOutcome::Resumed;
        }
        // What still runs goes first: when both a running operation and a finished one claim a
        // target, the finished one is older and was recorded by the core that sent the other.
        held.sort_by_key(|operation| operation.state() != HeldState::Running);
        let mut verdicts = Vec::with_capacity(held.len());
        for operation in held {
            away.remove(operation.operation_id.as_str());
            let completed = operation.state() == HeldState::Completed;
            let operation_id = operation.operation_id.clone();
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
                Ruling::Unwanted if completed => Verdict::Forget,
                Ruling::Unwanted => Verdict::Cancel,
            };
            verdicts.push(HeldVerdict { operation_id, verdict: verdict.into() });
        }
        for id in away {
            self.not_held(now, key, &id);
        }
        (outcome, verdicts)
    }

    /// The operations that earlier sessions of the same instance left behind.
    fn take_lost(&mut self, key: SessionKey) -> BTreeSet<OpId> {
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
        let Some(session) = self.sessions.get_mut(&key) else { return Ruling::Unwanted };
        let id = held.operation_id.as_str();
        let Some((id, _)) = self.operations.get_key_value(id) else {
            return if self.ended.contains(id) {
                Ruling::Unwanted
            } else {
                self.adopt(now, key, held)
            };
        };
        let id = Arc::clone(id);
        let Some(operation) = self.operations.get_mut(&id) else { return Ruling::Unwanted };
        match &operation.place {
            // Its lost session was taken over above: nobody but this instance can be meant.
            Place::Away(lost) if !self.lost.contains_key(lost) => {
                operation.place = Place::Sent(key);
                operation.request = None;
                session.in_flight.insert(Arc::clone(&id), operation.kind);
                let cancelled = operation.cancelled;
                self.heard_of(now, &id);
                Ruling::Kept(if cancelled { Verdict::Cancel } else { Verdict::Keep })
            }
            Place::Finished { holder, .. }
                if holder.as_ref() == Some(&session.driver.instance_id) =>
            {
                Ruling::Kept(Verdict::Keep)
            }
            Place::Queued(_) | Place::Sent(_) | Place::Away(_) | Place::Finished { .. } => {
                Ruling::Unwanted
            }
        }
    }

    /// An operation of an earlier life of the core, or of another one. The core cannot tell what
    /// was asked for, only who is affected; the controllers decide what the outcome is good for.
    fn adopt(&mut self, now: Instant, key: SessionKey, held: HeldOperation) -> Ruling {
        let kind = OperationKind::from_number(held.kind).filter(|kind| kind.is_mutation());
        let (Some(kind), Some(target)) = (kind, held.target) else { return Ruling::Unwanted };
        let Some(session) = self.sessions.get_mut(&key) else { return Ruling::Unwanted };
        if target.uid.is_empty()
            || self.slots.contains_key(&target.uid)
            || self.slots.len() >= self.options.limits.targets
        {
            return Ruling::Unwanted;
        }
        let id: OpId = held.operation_id.into();
        let provider = session.driver.provider.clone();
        session.in_flight.insert(Arc::clone(&id), kind);
        let target_uid = target.uid.clone();
        self.slots.insert(target_uid.clone(), Arc::clone(&id));
        let op = Op {
            kind,
            key: held.idempotency_key,
            target,
            provider,
            class: held.machine_class.filter(|class| !class.name.is_empty()),
            pinned: None,
            adopted: true,
            since: now,
            queued: now,
            timeout: self.options.timing.adopted,
            lane: Lane::User,
            owner: Owner::Target,
            place: Place::Sent(key),
            request: None,
            bytes: 0,
            pages: Pages::default(),
            progress: None,
            interval: None,
            stalled: false,
            told: None,
            cancelled: false,
            delivery: 1,
        };
        self.timers.set(Timer::Operation(Arc::clone(&id)), now + op.timeout);
        let operation_id = id.to_string();
        self.operations.insert(id, Box::new(op));
        self.publish(SessionEvent::Adopted { target_uid, operation_id });
        Ruling::Adopted
    }

    /// The driver does not have an operation that was sent to it. If it keeps what it has over a
    /// loss, the operation never arrived and goes to whoever is active now.
    fn not_held(&mut self, now: Instant, key: SessionKey, id: &OpId) {
        let retains = self.sessions.get(&key).is_some_and(|session| session.driver.retains);
        let Some(operation) = self.operations.get(id) else { return };
        if retains && !operation.accepted() {
            self.queue_again(now, id);
        } else {
            self.fail_lost(now, id);
        }
    }
}
