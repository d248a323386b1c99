//! Matches what a driver answered to the intent, whatever state the Machine is in, and hands it to
//! the state that asked: nothing that a driver did is forgotten because a Machine was deleted
//! meanwhile.

use std::collections::BTreeMap;

use ostler_api::driver::OperationKind;

use super::{
    State, cluster_id, creating, deleting, initializing, instance, lookup,
    operation_state::OperationState, pass::Pass, transition::Transition, updating,
};
use crate::operation::{Finished, OperationView, Success};

/// Takes the result in the snapshot, if there is one, and says where the pass goes on.
pub(crate) fn settle(pass: &mut Pass<'_>, state: State) -> Transition {
    let finished = match pass.operation_state() {
        OperationState::Working => {
            store_early_checkpoint(pass);
            return Transition::To(state);
        }
        OperationState::Free | OperationState::Unresolved => return Transition::To(state),
        OperationState::Stale(finished) => {
            settle_stale(pass, finished);
            return Transition::To(state);
        }
        OperationState::Answer(finished) => finished,
    };
    pass.settle(&finished.id);
    record_history(pass, finished);
    store_checkpoint(pass, finished);
    let failure = match &finished.outcome {
        Ok(success) => return succeeded(pass, success, state),
        Err(failure) => failure,
    };
    let changed = cluster_id::changed(pass, failure);
    let failure = changed.as_ref().unwrap_or(failure);
    match finished.kind {
        OperationKind::CreateMachine => creating::answered(pass, Err(failure), state),
        OperationKind::InitializeMachine => initializing::answered(pass, Err(failure), state),
        OperationKind::UpdateMachine => updating::answered(pass, Err(failure), state),
        OperationKind::DeleteMachine => deleting::answered(pass, Err(failure), state),
        OperationKind::GetMachineStatus => lookup::answered(pass, Err(failure), state),
        OperationKind::GetVolumeIds => {
            // A drain does not wait for a driver: the API server knows the pods.
            pass.learned.volume_ids = Some(BTreeMap::new());
            Transition::To(state)
        }
        // Never asked on behalf of a Machine.
        OperationKind::ListMachines
        | OperationKind::ValidateClass
        | OperationKind::CreatePool
        | OperationKind::UpdatePool
        | OperationKind::DeletePool
        | OperationKind::GetPoolStatus
        | OperationKind::ListPools
        | OperationKind::DeletePoolMachines
        | OperationKind::UpdatePoolMachine => Transition::To(state),
    }
}

fn succeeded(pass: &mut Pass<'_>, success: &Success, state: State) -> Transition {
    match success {
        Success::Read(record) => lookup::answered(pass, Ok(record), state),
        Success::Created(record) => creating::answered(pass, Ok(record), state),
        Success::Initialized(record) => initializing::answered(pass, Ok(record.as_ref()), state),
        Success::Updated { applied_paths } => updating::answered(pass, Ok(applied_paths), state),
        Success::Deleted { was_absent } => deleting::answered(pass, Ok(*was_absent), state),
        Success::VolumeIds(ids) => {
            pass.learned.volume_ids = Some(ids.clone());
            Transition::To(state)
        }
        // Never asked on behalf of a Machine.
        Success::Listed { .. }
        | Success::Reviewed(_)
        | Success::PoolChanged(_)
        | Success::PoolRead { .. }
        | Success::PoolsListed { .. }
        | Success::PoolMachinesDeleted { .. }
        | Success::PoolMachineUpdated(_) => Transition::To(state),
    }
}

/// Records the driver's answer in the history, for people.
fn record_history(pass: &mut Pass<'_>, finished: &Finished) {
    let (code, message) = match &finished.outcome {
        Ok(Success::Updated { applied_paths }) => ("OK", Some(updating::applied(applied_paths))),
        Ok(_) => ("OK", None),
        Err(failure) => (failure.code.name(), Some(failure.text())),
    };
    let now = pass.now();
    pass.history().answered(finished.kind.into(), code, message, now);
}

/// The intent is gone, and nothing waits for the result. An instance made for this Machine is
/// recorded all the same.
fn settle_stale(pass: &mut Pass<'_>, finished: &Finished) {
    pass.settle(&finished.id);
    if let Ok(Success::Created(record)) = &finished.outcome
        && pass.provider_id().is_none()
        && instance::is_own_create(pass.machine, finished, record)
    {
        instance::adopt(pass, record, None);
    }
}

/// The checkpoint that a driver wants handed back after a failed attempt: core and driver may both
/// be gone before there is an answer.
fn store_early_checkpoint(pass: &mut Pass<'_>) {
    let OperationView::InFlight(flight) = &pass.snap.operation else { return };
    let said = flight.progress.as_ref().map(|progress| &progress.checkpoint);
    if let Some(checkpoint) = said.filter(|it| flight.kind.is_mutation() && !it.is_empty()) {
        pass.status.last_known_state = Some(checkpoint.clone());
    }
}

/// The checkpoint to hand back. Only a finished mutation clears the checkpoint: a failure, a lost
/// session or a read without one does not.
fn store_checkpoint(pass: &mut Pass<'_>, finished: &Finished) {
    match finished.checkpoint.as_deref() {
        Some(checkpoint) if !checkpoint.is_empty() => {
            pass.status.last_known_state = Some(checkpoint.to_owned());
        }
        // A deletion that found nothing may be repeated, and find it then.
        Some(_)
            if finished.kind.is_mutation()
                && matches!(&finished.outcome, Ok(done) if *done != Success::Deleted { was_absent: true }) =>
        {
            pass.status.last_known_state = None;
        }
        Some(_) | None => {}
    }
}
