//! An operation that a driver did not begin is sent again, to the session that is active then.

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::operation::Reason;
use ostler_proto::v1alpha1::{
    MachineErrorCode, MachineErrorReason, OperationCompleted, OutcomeCertainty, Readiness,
    operation_completed,
};
use tokio::time::Instant;

use super::operations::{Op, Place};
use super::timers::Timer;
use super::{Hub, OperationId, SessionKey};

impl Hub {
    /// Whether a draining driver hands back an operation that reached it after its drain began. An
    /// accepted operation has failed, and so has an operation that a driver refuses without a drain:
    /// it would be requeued for ever.
    pub(super) fn is_handed_back(&self, key: SessionKey, completed: &OperationCompleted) -> bool {
        let Some(operation_completed::Outcome::Error(error)) = &completed.outcome else {
            return false;
        };
        let session = self.sessions.get(&key);
        let operation = self.operations.get(completed.operation_id.as_str());
        error.acts_by() == MachineErrorReason::DriverDraining
            && error.code() == MachineErrorCode::Unavailable
            && error.certainty() == OutcomeCertainty::NotApplied
            && session.is_some_and(|session| session.readiness == Readiness::Draining)
            && operation.is_some_and(|operation| {
                matches!(operation.place, Place::Sent(to) if to == key) && !operation.accepted()
            })
    }

    /// A driver that drains gave an operation back. The operation goes to the next driver, and has no outcome.
    pub(super) fn handed_back(&mut self, now: Instant, key: SessionKey, id: &OperationId) {
        let Some(session) = self.sessions.get(&key) else { return };
        let provider = session.driver.provider.clone();
        let instance = session.driver.instance_id.clone();
        // The driver does not end before this answer, and must not take the operation for done if it stays.
        self.ack(now, id, &provider, &instance);
        self.take_back(now, key, id);
        self.assign_role(now, &provider);
    }

    /// Takes an unaccepted operation back from a draining driver.
    pub(super) fn take_back(&mut self, now: Instant, key: SessionKey, id: &OperationId) {
        let Some(operation) = self.operations.get(id).filter(|it| !it.accepted()) else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.leave(id, operation.kind, operation.bytes);
        let provider = &session.driver.provider;
        tracing::info!(provider = provider.as_str(), operation = %id, "the driver drains, the operation goes to another");
        self.queue_again(now, id);
    }

    /// Puts an operation that no driver began back into the queue; the operation has no place now. It waits no longer
    /// in all than it might have waited before it was sent first, so it does not go round for ever.
    pub(super) fn queue_again(&mut self, now: Instant, id: &OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        if operation.cancelled {
            let message = "cancelled before it arrived";
            let why = (ErrorCode::Canceled, Reason::CoreCanceled, message);
            return self.fail(now, id, why, Certainty::NotApplied);
        }
        let until = operation.since + operation.timeout;
        let record = self.providers.get_mut(&operation.provider).filter(|_| now < until);
        let Some(record) = record else { return self.never_begun(now, id) };
        let Op { lane, kind, bytes, .. } = **operation;
        operation.place = Place::Queued(record.queue.push(id.clone(), lane, kind, bytes));
        operation.placed = now;
        (operation.ends, operation.accept_by) = (until, None);
        self.timers.set(Timer::Operation(id.clone()), until);
    }
}
