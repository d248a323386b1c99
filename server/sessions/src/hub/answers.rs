//! From the driver to the controllers: acceptance, progress, pages, results, and timeouts.

use ostler_api::ProviderName;
use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::operation::{Failure, Reason};
use ostler_proto::v1alpha1::{
    OperationCompleted, OperationPage, OperationResult, operation_completed, operation_result,
};
use tokio::time::Instant;

use super::operations::{Answer, Owner, Place};
use super::pages::{PageFault, Pages};
use super::timers::Timer;
use super::{Count, Hub, Later, OperationId, SessionKey, trace};
use crate::session::outbox::Room;
use crate::session::{Close, frames};
use crate::{SessionEvent, convert};

pub(crate) const CHECKPOINT_BYTES: usize = 4 << 10;
/// Missed times for acceptance before the session ends: of operations in a row, or of the same operation.
const NOT_ACCEPTED: u32 = 3;

/// Code, reason and message of a failure that the core speaks of.
pub(super) type Why<'a> = (ErrorCode, Reason, &'a str);

/// Why a list fails that is over a limit.
const TOO_LONG: Why<'static> = (
    ErrorCode::ResourceExhausted,
    Reason::CoreListTooLong,
    "the list is longer than the core holds",
);

impl Hub {
    /// A slice of a list.
    pub(super) fn paged(&mut self, now: Instant, key: SessionKey, page: OperationPage) {
        let limits = self.options.limits.clone();
        let id: OperationId = page.operation_id.as_str().into();
        self.accepted(now, key, &id);
        if self.sent(key, &id).is_none() {
            return;
        }
        self.note_progress(now, &id);
        let room = limits.lists_bytes.saturating_sub(self.other_lists(key, &id));
        let Some(operation) = self.sent(key, &id) else { return };
        if !operation.kind.is_paged() {
            let message = format!("operation {id} is no list and has no pages");
            return self.close(now, key, Close::violation("PAGE_UNEXPECTED", message));
        }
        match operation.pages.add(page, limits.list_records, limits.list_bytes.min(room)) {
            Ok(()) => {}
            Err(fault @ (PageFault::Gap { .. } | PageFault::Mixed)) => {
                self.close(now, key, bad_pages(&id, fault));
            }
            Err(PageFault::TooLong) => {
                self.send_cancel(key, &id, Reason::CoreListTooLong.word());
                self.give_up(now, key, &id, TOO_LONG);
            }
        }
    }

    /// Bytes of this session's unfinished lists, without the given operation's.
    fn other_lists(&self, key: SessionKey, id: &OperationId) -> usize {
        let ids = self.sessions.get(&key).into_iter().flat_map(|session| session.in_flight.ids());
        let others = ids.filter(|other| *other != id);
        others.filter_map(|it| self.operations.get(it)).map(|it| it.pages.bytes).sum()
    }

    /// An operation ended.
    pub(super) fn completed(
        &mut self,
        now: Instant,
        key: SessionKey,
        completed: Box<OperationCompleted>,
    ) {
        if self.is_handed_back(key, &completed) {
            return self.handed_back(now, key, &completed.operation_id.into());
        }
        let limits = (self.options.limits.list_records, self.options.limits.list_bytes);
        let OperationCompleted { operation_id, checkpoint: said, outcome } = *completed;
        let known = self.operations.get_key_value(operation_id.as_str()).map(|(id, _)| id.clone());
        let id = known.unwrap_or_else(|| operation_id.as_str().into());
        let Some(operation) = self.sent(key, &id) else { return self.repeated(key, &id) };
        let before = operation.progress.take().map(|progress| progress.checkpoint);
        let said = checkpoint(said, before.unwrap_or_default());
        let pages = std::mem::take(&mut operation.pages);
        let (provider, kind) = (operation.provider.clone(), operation.kind);
        let unread = operation.unread();
        let mut answer = match answer_of(operation.kind, outcome, pages, limits) {
            Ok(answer) => answer,
            Err(PageFault::TooLong) => {
                Box::new(operation.failure(TOO_LONG.0, TOO_LONG.1, TOO_LONG.2, Certainty::Unknown))
            }
            Err(fault) => {
                // The operation was begun: no second send.
                self.accepted(now, key, &id);
                return self.close(now, key, bad_pages(&id, fault));
            }
        };
        if let Some(session) = self.sessions.get_mut(&key) {
            session.leave(&id, kind, unread);
            if unread > 0 {
                session.not_accepted = 0;
            }
        }
        self.throttle(now, &provider, &mut answer);
        self.finish(now, &id, answer, said, Some((key, operation_id)));
        self.pump(now, &provider);
    }

    /// If the infrastructure throttles, all creates of the provider pause: a thousand machines need
    /// not find out one by one.
    fn throttle(&mut self, now: Instant, provider: &ProviderName, answer: &mut Answer) {
        let Err(failure) = answer else { return };
        let by_code = matches!(failure.code, ErrorCode::ResourceExhausted | ErrorCode::Unavailable);
        if !by_code || failure.reason != Reason::Throttled {
            return;
        }
        let timing = &self.options.timing;
        let wait = *failure.retry_after.get_or_insert(timing.throttled);
        let wait = wait.min(timing.throttled_longest);
        let Some(record) = self.providers.get_mut(provider) else { return };
        record.pace.pause(now, wait);
        if let Some(until) = record.pace.paused_until(now) {
            self.timers.set(Timer::Pause(provider.clone()), until);
        }
        tracing::warn!(
            provider = provider.as_str(),
            ?wait,
            "the infrastructure throttles, creates pause"
        );
        self.count(Count::Throttled { provider: provider.clone() });
    }

    /// A result that is here already, or is not awaited any more.
    fn repeated(&mut self, key: SessionKey, id: &OperationId) {
        if self.looks() && !self.ended.contains(id.as_str()) {
            return; // kept for the core that asked
        }
        let Some(session) = self.sessions.get(&key) else { return };
        let instance = Some(session.driver.instance_id.as_str());
        let provider = session.driver.provider.clone();
        if let Some(operation) = self.operations.get(id)
            && let Place::Finished { holder, .. } = &operation.place
            && holder.as_deref() == instance
            && operation.provider == provider
        {
            return; // acknowledged once it is recorded
        }
        self.send_frame(key, frames::result_ack(id.clone()), Room::Answer);
        self.count(Count::Late { provider });
    }

    /// An operation has an outcome. It must not be with any session, queue or lost session. `from`: the reporting
    /// session, and its id for the acknowledgement.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        id: &OperationId,
        answer: Box<Answer>,
        checkpoint: String,
        from: Option<(SessionKey, String)>,
    ) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        if operation.interval.is_some() {
            self.timers.clear(&Timer::Stall(id.clone()));
        }
        self.later.push(Later::Count(Count::Ended {
            provider: operation.provider.clone(),
            kind: operation.kind,
            code: code_of(&answer),
            took: now - operation.since,
        }));
        operation.audit(id, None, code_of(&answer));
        let span = trace::span(now, id.as_str(), operation, &answer);
        self.later.extend(span.map(|span| Later::Span(Box::new(span))));
        if matches!(operation.owner, Owner::Target) {
            operation.accept();
            operation.accept_by = None;
            operation.pages = Pages::default();
            operation.stalled = false;
            operation.pinned = None;
            let volumes = std::mem::take(&mut operation.volumes);
            let outcome = answer.and_then(|response| convert::outcome(response, volumes));
            let outcome = Box::new(outcome);
            let session = from.and_then(|(key, _)| self.sessions.get(&key));
            let holder = session.map(|session| session.driver.instance_id.clone());
            operation.place = Place::Finished { outcome, checkpoint, holder };
            let target_uid = operation.target().uid.clone();
            operation.ends = now + self.options.timing.unclaimed;
            self.timers.set(Timer::Operation(id.clone()), operation.ends);
            self.publish(SessionEvent::OutcomeReady {
                target_uid: target_uid.into(),
                operation_id: id.clone(),
            });
            return;
        }
        let gone = self.forget(id);
        self.later.extend(gone.map(|gone| Later::Answer(gone, answer)));
        if let Some((key, id)) = from {
            self.ack_to(now, key, id);
        }
    }

    /// The core itself makes the outcome of an operation that no driver has.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        id: &OperationId,
        why: Why<'_>,
        certainty: Certainty,
    ) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let outcome = operation.failure(why.0, why.1, why.2, certainty);
        let said = operation.progress.take().map(|progress| progress.checkpoint);
        self.finish(now, id, Box::new(outcome), said.unwrap_or_default(), None);
    }

    /// Stops waiting for an operation that a driver has: its outcome is unknown.
    pub(super) fn give_up(
        &mut self,
        now: Instant,
        key: SessionKey,
        id: &OperationId,
        why: Why<'_>,
    ) {
        let Some(operation) = self.operations.get(id) else { return };
        let (kind, unread) = (operation.kind, operation.unread());
        let provider = self.sessions.get_mut(&key).map(|session| {
            session.leave(id, kind, unread);
            session.driver.provider.clone()
        });
        self.fail(now, id, why, Certainty::Unknown);
        if let Some(provider) = provider {
            self.pump(now, &provider);
        }
    }

    /// The timer of an operation is due.
    pub(super) fn operation_due(&mut self, now: Instant, id: &OperationId) {
        let Some(operation) = self.operations.get(id) else { return };
        if operation.due() > now {
            self.timers.set(Timer::Operation(id.clone()), operation.due());
        } else if operation.accept_by == Some(operation.due()) {
            self.not_accepted(now, id);
        } else {
            self.overdue(now, id);
        }
    }

    /// An operation was not accepted in time. It may still start. So a mutation stays with the driver, and no other
    /// mutation begins for its target, until the driver reports on it or its session is over: another driver could not
    /// know about the running mutation.
    fn not_accepted(&mut self, now: Instant, id: &OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let Place::Sent(key) = operation.place else { return };
        operation.missed += 1;
        let (missed, stays) = (operation.missed, operation.kind.is_mutation());
        let missed = self.sessions.get_mut(&key).map(|session| {
            session.not_accepted += 1;
            session.not_accepted.max(missed)
        });
        if stays {
            operation.accept_by = Some(now + self.options.timing.accept);
            self.timers.set(Timer::Operation(id.clone()), operation.due());
        } else {
            self.send_cancel(key, id, Reason::CoreAcceptTimeout.word());
            let message = "the driver did not accept the operation in time";
            let why = (ErrorCode::DeadlineExceeded, Reason::CoreAcceptTimeout, message);
            self.give_up(now, key, id, why);
        }
        if let Some(missed) = missed.filter(|missed| *missed >= NOT_ACCEPTED) {
            self.close(now, key, Close::not_accepting(missed));
        }
    }

    /// The time of an operation is up that no driver has begun.
    pub(super) fn never_begun(&mut self, now: Instant, id: &OperationId) {
        let message = "the operation waited for the driver for all of its time";
        let why = (ErrorCode::DeadlineExceeded, Reason::CoreTimeout, message);
        self.fail(now, id, why, Certainty::NotApplied);
    }

    /// The time of an operation is up, wherever it is.
    fn overdue(&mut self, now: Instant, id: &OperationId) {
        let Some(operation) = self.operations.get(id) else { return };
        match operation.place {
            Place::Queued(ticket) => {
                if let Some(record) = self.providers.get_mut(&operation.provider) {
                    record.queue.remove(ticket);
                }
                self.never_begun(now, id);
            }
            Place::Sent(key) => {
                self.send_cancel(key, id, Reason::CoreTimeout.word());
                let message = "the driver did not answer in time";
                let why = (ErrorCode::DeadlineExceeded, Reason::CoreTimeout, message);
                self.give_up(now, key, id, why);
            }
            Place::Away(lost) => {
                if let Some(lost) = self.lost.get_mut(&lost) {
                    lost.operations.remove(id);
                }
                let message = "the session was lost, and the time of the operation is up";
                let why = (ErrorCode::DeadlineExceeded, Reason::CoreTimeout, message);
                self.fail(now, id, why, Certainty::Unknown);
            }
            Place::Finished { .. } => {
                let provider = operation.provider.clone();
                tracing::warn!(operation = %id, provider = provider.as_str(), "result dropped, no controller recorded it");
                self.acknowledge(now, id);
                self.count(Count::Unclaimed { provider });
            }
        }
    }
}

fn bad_pages(id: &OperationId, fault: PageFault) -> Close {
    match fault {
        PageFault::Gap { expected } => {
            Close::violation("PAGE_GAP", format!("operation {id}: page {expected} was due"))
        }
        PageFault::Mixed => {
            let message =
                format!("operation {id}: records come in pages or in the result, not both");
            Close::violation("PAGE_MIX", message)
        }
        PageFault::TooLong => {
            Close::violation("PAGE_OVERFLOW", format!("operation {id}: the list is too long"))
        }
    }
}

fn code_of(answer: &Answer) -> &'static str {
    answer.as_ref().map_or_else(|failure| failure.code.name(), |_| "OK")
}

/// The answer that a driver reports, if its pages are all there.
fn answer_of(
    kind: OperationKind,
    outcome: Option<operation_completed::Outcome>,
    pages: Pages,
    limits: (usize, usize),
) -> Result<Box<Answer>, PageFault> {
    use operation_completed::Outcome::{Error, Result as Success};
    match outcome {
        Some(Error(error)) => Ok(Box::new(Err(convert::failure(error)))),
        Some(Success(OperationResult { response: Some(mut response) }))
            if kind_of(&response) == kind =>
        {
            pages.put_into(&mut response, limits)?;
            Ok(Box::new(Ok(response)))
        }
        Some(Success(_)) | None => {
            let (code, reason) = (ErrorCode::Internal, Reason::CoreWrongResult);
            let message = format!("the driver's answer is not one to {kind}");
            Ok(Box::new(Err(Failure::by_core(code, reason, &message, Certainty::Unknown))))
        }
    }
}

fn kind_of(response: &operation_result::Response) -> OperationKind {
    use operation_result::Response;
    match response {
        Response::CreateMachine(_) => OperationKind::CreateMachine,
        Response::InitializeMachine(_) => OperationKind::InitializeMachine,
        Response::UpdateMachine(_) => OperationKind::UpdateMachine,
        Response::DeleteMachine(_) => OperationKind::DeleteMachine,
        Response::GetMachineStatus(_) => OperationKind::GetMachineStatus,
        Response::ListMachines(_) => OperationKind::ListMachines,
        Response::GetVolumeIds(_) => OperationKind::GetVolumeIds,
        Response::ValidateClass(_) => OperationKind::ValidateClass,
        Response::CreatePool(_) => OperationKind::CreatePool,
        Response::UpdatePool(_) => OperationKind::UpdatePool,
        Response::DeletePool(_) => OperationKind::DeletePool,
        Response::GetPoolStatus(_) => OperationKind::GetPoolStatus,
        Response::ListPools(_) => OperationKind::ListPools,
        Response::DeletePoolMachines(_) => OperationKind::DeletePoolMachines,
        Response::UpdatePoolMachine(_) => OperationKind::UpdatePoolMachine,
    }
}

/// The newer checkpoint, unless there is none or it is too long to be kept.
pub(super) fn checkpoint(said: String, before: String) -> String {
    if said.is_empty() || said.len() > CHECKPOINT_BYTES { before } else { said }
}
