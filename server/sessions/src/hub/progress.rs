//! Running operations: acceptance, progress, and stalls.

use ostler_api::Uid;

use ostler_api::driver::OperationKind;
use ostler_api::operation::Progress;
use ostler_proto::v1alpha1::OperationProgress;
use tokio::time::Instant;

use super::answers::checkpoint;
use super::operations::{Op, Owner, Place};
use super::timers::Timer;
use super::{Count, Hub, OperationId, SessionKey};
use crate::SessionEvent;
use crate::convert::{MESSAGE_BYTES, WORD_BYTES, cut};

/// Whether an operation takes long enough for its progress to be asked for.
pub(super) fn is_long(kind: OperationKind) -> bool {
    match kind {
        OperationKind::CreateMachine
        | OperationKind::InitializeMachine
        | OperationKind::UpdateMachine
        | OperationKind::DeleteMachine
        | OperationKind::ListMachines
        | OperationKind::CreatePool
        | OperationKind::UpdatePool
        | OperationKind::DeletePool
        | OperationKind::GetPoolStatus
        | OperationKind::ListPools
        | OperationKind::DeletePoolMachines
        | OperationKind::UpdatePoolMachine => true,
        OperationKind::GetMachineStatus
        | OperationKind::GetVolumeIds
        | OperationKind::ValidateClass => false,
    }
}

impl Hub {
    /// The operation of the id, if with this session.
    pub(super) fn sent(&mut self, key: SessionKey, id: &OperationId) -> Option<&mut Op> {
        let operation = self.operations.get_mut(id)?.as_mut();
        matches!(operation.place, Place::Sent(session) if session == key).then_some(operation)
    }

    /// The driver has an operation.
    pub(super) fn accepted(&mut self, now: Instant, key: SessionKey, id: &OperationId) {
        let Some(operation) = self.sent(key, id) else { return };
        if operation.accepted() {
            return;
        }
        operation.accept();
        let bytes = operation.bytes;
        operation.accept_by = None;
        self.note_progress(now, id);
        let limit = self.options.limits.unaccepted_bytes;
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.not_accepted = 0;
        let was_full = session.unaccepted >= limit;
        session.unaccepted = session.unaccepted.saturating_sub(bytes);
        if was_full {
            let provider = session.driver.provider.clone();
            self.pump(now, &provider);
        }
    }

    /// The driver says how far an operation is.
    pub(super) fn progressed(
        &mut self,
        now: Instant,
        key: SessionKey,
        progress: OperationProgress,
    ) {
        let id: OperationId = progress.operation_id.into();
        self.accepted(now, key, &id);
        let pause = self.options.timing.checkpoint;
        let Some(operation) = self.sent(key, &id) else { return };
        let before = operation.progress.take().map(|before| before.checkpoint).unwrap_or_default();
        let said = checkpoint(progress.checkpoint, before);
        let told = operation.reported.as_ref();
        let news = !said.is_empty()
            && told.is_none_or(|(at, told)| *told != said && now.duration_since(*at) >= pause);
        if news {
            operation.reported = Some((now, said.clone()));
        }
        operation.progress = Some(Progress {
            stage: cut(progress.stage, WORD_BYTES),
            message: cut(progress.message, MESSAGE_BYTES),
            percent: progress.percent.min(100),
            checkpoint: said,
        });
        if news && let Some(target_uid) = operation.watched() {
            let operation_id = id.clone();
            self.publish(SessionEvent::Checkpoint { target_uid, operation_id });
        }
        self.note_progress(now, &id);
    }

    /// The driver works on an operation: it is not stalled, or not any more.
    pub(super) fn note_progress(&mut self, now: Instant, id: &OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let Some(interval) = operation.interval else { return };
        let missed = self.options.timing.progress_missed;
        let patience = interval.saturating_mul(missed.max(1));
        self.timers.set(Timer::Stall(id.clone()), now + patience);
        if std::mem::replace(&mut operation.stalled, false) {
            self.tell_stall(id, false);
        }
    }

    /// Nothing was heard of an operation for too long. The operation is not sent again: it may be
    /// under way.
    pub(super) fn stalled(&mut self, id: &OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.stalled = true;
        let (provider, kind) = (operation.provider.clone(), operation.kind);
        let target = operation.target().name.clone();
        tracing::warn!(operation = %id, provider = provider.as_str(), %kind, target, "no progress for long");
        self.count(Count::Stalled { provider, kind });
        self.tell_stall(id, true);
    }

    fn tell_stall(&mut self, id: &OperationId, stalled: bool) {
        let watched = self.operations.get(id).and_then(|operation| operation.watched());
        if let Some(target_uid) = watched {
            let operation_id = id.clone();
            self.publish(SessionEvent::Stalled { target_uid, operation_id, stalled });
        }
    }

    /// The driver of an operation lost its session, or came back with or without the operation.
    pub(super) fn tell_loss(&mut self, id: &OperationId, lost: bool) {
        let watched = self.operations.get(id).and_then(|operation| operation.watched());
        if let Some(target_uid) = watched {
            let operation_id = id.clone();
            self.publish(SessionEvent::Lost { target_uid, operation_id, lost });
        }
    }
}

impl Op {
    /// UID of the target, unless a call waits for the operation.
    pub(super) fn watched(&self) -> Option<Uid> {
        matches!(self.owner, Owner::Target).then(|| self.target().uid.as_str().into())
    }
}
