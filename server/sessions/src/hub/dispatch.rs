//! From the controllers to the driver: submit, queue, send, cancel, acknowledge.

use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::Reason;
use ostler_api::{ProviderName, Revision};
use ostler_proto::v1alpha1::{ObjectRevision, Operation};
use tokio::time::Instant;

use super::operations::{Op, Owner, Place};
use super::pages::Pages;
use super::progress::is_long;
use super::session::Session;
use super::timers::Timer;
use super::{Count, Hub, Later, OperationId, SessionKey, size};
use crate::operation::Order;
use crate::session::frames;
use crate::session::outbox::Room;
use crate::{SessionEvent, SubmitError};

/// The controllers hear that an operation is sent only after so long a wait: before, they do not show the wait.
const WORTH_SAYING: Duration = Duration::from_secs(2);

fn class_name(class: &ObjectRevision) -> String {
    format!("{}/{}", class.namespace, class.name)
}

impl Hub {
    /// Accepts an operation for dispatch, or says why not.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        order: Order,
        owner: Owner,
    ) -> Result<(), SubmitError> {
        let Order { id, kind, provider, timeout, lane, operation, volumes, class, secret } = order;
        let provider = self.options.aliases.get(&provider).cloned().unwrap_or(provider);
        self.may_ask(kind, &provider)?;
        let slotted = matches!(owner, Owner::Target) || kind.is_mutation();
        let frame_limit = self.frame_limit(&provider, kind)?;
        let mut request = self.stamped(operation);
        request.traceparent = self.traceparent(id.as_str(), kind, &request);
        let target_uid = request.target.as_ref().map_or("", |target| &target.uid);
        self.check_target(&id, slotted.then_some(target_uid), &provider)?;
        let bytes = size::check(&request, class.as_deref(), frame_limit)?;
        let Some(record) = self.providers.get_mut(&provider) else {
            return Err(SubmitError::NoDriver { provider: provider.clone() });
        };
        let limits = &self.options.limits;
        if record.queue.len() >= limits.queued || record.queue.bytes() + bytes > limits.queued_bytes
        {
            return Err(SubmitError::QueueFull { provider: provider.clone() });
        }
        let ticket = record.queue.push(id.clone(), lane, kind, bytes);
        if let (Some(class), Some(secret)) = (&request.machine_class, &secret) {
            self.invalidate(&provider, class, secret);
        }
        if slotted {
            self.slots.insert(target_uid.into(), id.clone());
        }
        let op = Op {
            kind,
            provider: provider.clone(),
            volumes,
            pinned: class,
            since: now,
            placed: now,
            timeout,
            ends: now + timeout,
            accept_by: None,
            lane,
            owner,
            place: Place::Queued(ticket),
            request,
            bytes,
            pages: Pages::default(),
            progress: None,
            interval: None,
            stalled: false,
            reported: None,
            cancelled: false,
            missed: 0,
        };
        let ends = op.ends;
        self.operations.insert(id.clone(), Box::new(op));
        self.pump(now, &provider);
        // Unless it was sent right away, and has the timer of its answer.
        self.timers.start(Timer::Operation(id), ends);
        Ok(())
    }

    /// The size of frames of the driver that would get the operation.
    fn frame_limit(
        &self,
        provider: &ProviderName,
        kind: OperationKind,
    ) -> Result<usize, SubmitError> {
        let active = self.providers.get(provider).and_then(|record| record.active);
        let session = active.and_then(|key| self.sessions.get(&key));
        let Some(session) = session.filter(|session| session.is_ready()) else {
            return Err(SubmitError::NoDriver { provider: provider.clone() });
        };
        if !session.driver.kinds.contains(&kind) {
            return Err(SubmitError::KindUnsupported { provider: provider.clone(), kind });
        }
        Ok(usize::try_from(session.driver.max_frame_bytes).unwrap_or(usize::MAX))
    }

    /// `slotted`: the UID of the target of an operation that occupies it.
    fn check_target(
        &self,
        id: &OperationId,
        slotted: Option<&str>,
        provider: &ProviderName,
    ) -> Result<(), SubmitError> {
        let same = self.operations.get_key_value(id);
        let slot = slotted.and_then(|target_uid| self.slots.get(target_uid));
        if let Some(id) = same.map(|(id, _)| id).or(slot) {
            return Err(SubmitError::TargetBusy { operation_id: id.clone() });
        }
        if slotted.is_some() && self.slots.len() >= self.options.limits.targets {
            return Err(SubmitError::QueueFull { provider: provider.clone() });
        }
        Ok(())
    }

    /// An operation with the term of this core and the ids of its cluster.
    pub(crate) fn stamped(&self, mut operation: Box<Operation>) -> Box<Operation> {
        operation.fencing_term = self.term().0.into();
        operation.cluster_id.clone_from(&self.options.cluster_id);
        operation.previous_cluster_ids.clone_from(&self.options.previous_cluster_ids);
        operation
    }

    /// Tells the drivers of a provider to read a class and its secret anew, if the secret changed since their last
    /// read. Called when an operation is accepted: before, the operation may be refused, or overtaken by another.
    fn invalidate(&mut self, provider: &ProviderName, class: &ObjectRevision, secret: &Revision) {
        let read = self.secrets.put(class_name(class), secret.clone());
        if read.is_none_or(|read| read == *secret) {
            return;
        }
        let ObjectRevision { namespace, name, .. } = class.clone();
        let stale = ObjectRevision { namespace, name, ..ObjectRevision::default() };
        let sessions = self.sessions.iter().filter(|(_, it)| it.driver.provider == *provider);
        let keys: Vec<SessionKey> = sessions.map(|(key, _)| *key).collect();
        for key in keys {
            self.send_frame(key, frames::invalidate(stale.clone()), Room::Limited);
        }
    }

    /// A driver reads a class with this secret, maybe for an operation that another core sent.
    pub(crate) fn class_read(&mut self, class: &ObjectRevision, secret: Revision) {
        self.secrets.get_or_insert(class_name(class), || secret);
    }

    /// Sends what waits for a provider, as far as the credit of its active session and its rate go.
    pub(super) fn pump(&mut self, now: Instant, provider: &ProviderName) {
        while self.may_send(now)
            && let Some((id, key)) = self.next_to_send(now, provider)
        {
            if !self.send(now, &id, key) {
                // Another driver took over since the operation was accepted.
                let message = "the driver that took over does not support the operation";
                let why = (ErrorCode::Unimplemented, Reason::CoreKindUnsupported, message);
                self.fail(now, &id, why, Certainty::NotApplied);
            }
        }
    }

    fn next_to_send(
        &mut self,
        now: Instant,
        provider: &ProviderName,
    ) -> Option<(OperationId, SessionKey)> {
        let window = self.options.limits.unaccepted_bytes;
        let record = self.providers.get_mut(provider).filter(|record| record.queue.len() > 0)?;
        let key = record.active?;
        let session = self.sessions.get(&key).filter(|session| session.has_credit(window))?;
        if let Some(next) = record.pace.next(now) {
            self.timers.set(Timer::Rate(provider.clone()), next);
            return None;
        }
        let held = record.held(now, session);
        Some((record.queue.pop(held)?, key))
    }

    /// `false`: the driver has no such verb.
    fn send(&mut self, now: Instant, id: &OperationId, key: SessionKey) -> bool {
        let (Some(operation), Some(session)) =
            (self.operations.get_mut(id), self.sessions.get_mut(&key))
        else {
            return false;
        };
        if !session.driver.kinds.contains(&operation.kind) {
            return false;
        }
        let asked = session.driver.progresses && is_long(operation.kind);
        operation.interval = asked.then_some(self.options.timing.progress);
        operation.missed = 0;
        operation.request.delivery += 1;
        operation.request.progress_interval = operation.interval.map(frames::duration);
        let frame = frames::operation(operation.request.clone());
        operation.place = Place::Sent(key);
        operation.ends = now + operation.timeout + self.options.timing.grace;
        operation.accept_by = Some(now + self.options.timing.accept);
        operation.audit(id, Some(&session.principal), "sent");
        session.in_flight.insert(id.clone(), operation.kind);
        session.unaccepted += operation.bytes;
        let (provider, kind) = (operation.provider.clone(), operation.kind);
        let waited = now - std::mem::replace(&mut operation.placed, now);
        let watched = operation.watched().filter(|_| waited >= WORTH_SAYING);
        if let Some(record) = self.providers.get_mut(&provider) {
            record.pace.sent(now);
        }
        self.later.push(Later::Count(Count::Sent { provider, kind, waited }));
        self.timers.set(Timer::Operation(id.clone()), operation.due());
        if let Some(target_uid) = watched {
            self.publish(SessionEvent::Sent { target_uid, operation_id: id.clone() });
        }
        self.send_frame(key, frame, Room::Reserved);
        true
    }

    /// Asks the driver to stop; takes the operation back if it was not sent.
    pub(crate) fn cancel(&mut self, now: Instant, id: &OperationId, reason: &str) {
        let Some((id, operation)) = self.operations.get_key_value(id) else { return };
        let id = id.clone();
        match operation.place {
            Place::Queued(ticket) => {
                if let Some(record) = self.providers.get_mut(&operation.provider) {
                    record.queue.remove(ticket);
                }
                let message = "cancelled before it was sent";
                let why = (ErrorCode::Canceled, Reason::CoreCanceled, message);
                self.fail(now, &id, why, Certainty::NotApplied);
            }
            Place::Sent(key) => self.send_cancel(key, &id, reason),
            Place::Away(_) => {
                if let Some(operation) = self.operations.get_mut(&id) {
                    operation.cancelled = true;
                }
            }
            Place::Finished { .. } => {}
        }
    }

    /// Sends a cancel once.
    pub(super) fn send_cancel(&mut self, key: SessionKey, id: &OperationId, reason: &str) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        if !std::mem::replace(&mut operation.cancelled, true) {
            self.send_frame(key, frames::cancel(id.as_str(), reason), Room::Reserved);
        }
    }

    /// The outcome is recorded: the driver may forget it, the target is free.
    pub(crate) fn acknowledge(&mut self, now: Instant, id: &OperationId) {
        let Some((id, operation)) = self.operations.get_key_value(id) else { return };
        if let Place::Finished { holder, .. } = &operation.place {
            let id = id.clone();
            let (holder, provider) = (holder.clone(), operation.provider.clone());
            let gone = self.forget(&id);
            self.later.extend(gone.map(Later::Forget));
            if let Some(instance) = holder {
                self.ack(now, &id, &provider, &instance);
            }
        }
    }

    /// The target is gone: its outcome is dropped, or will be. Until then the driver works on it, and the target is not
    /// idle. An unsent operation that would make an instance for the target is not sent at all.
    pub(crate) fn abandon(&mut self, now: Instant, target_uid: &str) {
        let Some(id) = self.slots.get(target_uid).cloned() else { return };
        let operation = self.operations.get(&id);
        if operation
            .is_some_and(|it| matches!(it.place, Place::Queued(_)) && it.kind.makes_instances())
        {
            self.cancel(now, &id, "its target is gone");
        }
        self.acknowledge(now, &id);
        if let Some(operation) = self.operations.get_mut(&id)
            && matches!(operation.owner, Owner::Target)
        {
            operation.owner = Owner::Gone;
        }
    }

    /// Drops an ended operation, and remembers its end. A single timer is left of it.
    pub(super) fn forget(&mut self, id: &OperationId) -> Option<Box<Op>> {
        let (id, operation) = self.operations.remove_entry(id)?;
        let target_uid = operation.target().uid.as_str();
        if self.slots.get(target_uid) == Some(&id) {
            self.slots.remove(target_uid);
        }
        self.ended.put(id.as_str());
        self.timers.clear(&Timer::Operation(id));
        Some(operation)
    }

    /// Tells the driver that keeps a result to forget the result, if the driver is here.
    pub(super) fn ack(
        &mut self,
        now: Instant,
        id: &OperationId,
        provider: &ProviderName,
        instance: &str,
    ) {
        let is_holder =
            |it: &Session| it.driver.provider == *provider && it.driver.instance_id == instance;
        let holder = self.sessions.iter().find(|(_, session)| is_holder(session));
        if let Some(key) = holder.map(|(key, _)| *key) {
            self.ack_to(now, key, id.clone());
        }
    }

    /// Tells the driver of a session to forget a result.
    pub(super) fn ack_to(&mut self, now: Instant, key: SessionKey, id: impl Into<String>) {
        self.timers.start(Timer::Flush(key), now + self.options.timing.acknowledge);
        self.send_frame(key, frames::result_ack(id), Room::Unhurried);
    }
}
