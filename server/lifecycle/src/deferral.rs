//! Decides which status the pass need not write, because a later write of the same Machine is due within moments, and
//! nothing is lost if the core dies before.
//!
//! Written in time in any case: an operation before it is sent, the result of a mutation before it is acknowledged,
//! the start of the creation. Of a first creation they stand in the metadata, in patches that are due anyhow: the
//! create in annotation [`OPERATION`] with the finalizer, its instance in `spec.providerID`, with the initialization
//! that follows at once in that annotation. The rest of the status follows within two seconds after these patches,
//! like the progress of a drain.

use jiff::Timestamp;
use ostler_api::{
    OperationRecord,
    driver::OperationKind,
    machine::{MachinePhase, MachineStatus, OperationIntent},
    names::annotation::OPERATION,
};

use crate::{
    operation::{Dispatch, OperationView},
    plan::{Action, Event, EventReason, MachinePatch, Plan},
    snapshot::Snapshot,
    unwritten::{Unwritten, due},
};

/// The status to keep instead of writing it; `None`: it is to be written. `at`: when the actions were done, which may
/// wait for their turn for longer than a status.
pub(crate) fn keep(
    snapshot: &Snapshot,
    plan: &Plan,
    status: &MachineStatus,
    events: &[Event],
    at: Timestamp,
) -> Option<Unwritten> {
    // The result of an operation may wait as long as the status of the operation before.
    let kept = snapshot.unwritten.as_ref().filter(|_| written_record(plan).is_none());
    let since = kept.map_or(at, |it| it.since);
    // A clock that was set back must not lengthen the wait.
    let may = kept.is_none_or(|_| (since..due(since)).contains(&snapshot.now))
        && events.iter().all(|event| event.reason == EventReason::InstanceCreated)
        && (precedes_a_write(snapshot, plan)
            || is_in_the_metadata(snapshot, plan, status)
            || is_progress_of_a_drain(snapshot, plan, status));
    may.then(|| Unwritten {
        stored: snapshot.stored_status().cloned(),
        status: status.clone(),
        events: events.to_vec(),
        since,
    })
}

/// The events of a pass, after the events kept with the status. The event that a Node joined replaces the event of its
/// instance's creation.
pub(crate) fn told(snapshot: &Snapshot, events: impl Iterator<Item = Event>) -> Vec<Event> {
    let kept = snapshot.unwritten.iter().flat_map(|it| it.events.iter().cloned());
    let mut all: Vec<_> = kept.chain(events).collect();
    if all.iter().any(|it| it.reason == EventReason::NodeJoined) {
        all.retain(|it| it.reason != EventReason::InstanceCreated);
    }
    all
}

fn precedes_a_write(snapshot: &Snapshot, plan: &Plan) -> bool {
    plan.status_waits && plan.dispatch.is_none() && settled(snapshot, plan).is_none()
}

/// Whether only the number of remaining pods changed in a drain with a recorded deadline: pods leave one by one.
fn is_progress_of_a_drain(snapshot: &Snapshot, plan: &Plan, status: &MachineStatus) -> bool {
    let before = snapshot.stored_status();
    let Some((before, drain)) = before.and_then(|it| Some((it, it.drain.as_ref()?))) else {
        return false;
    };
    let same_drain =
        status.drain.as_ref().is_some_and(|it| it.clone().renewed() == drain.clone().renewed());
    if !same_drain || drain.finished || plan.dispatch.is_some() || plan.acknowledge.is_some() {
        return false;
    }
    let mut status = status.clone();
    status.drain.clone_from(&before.drain);
    if let (Some(wait), Some(before)) = (&mut status.waiting_for, &before.waiting_for) {
        wait.message.clone_from(&before.message);
    }
    status == *before
}

/// The mutation whose result is acknowledged.
fn settled(snapshot: &Snapshot, plan: &Plan) -> Option<OperationKind> {
    let OperationView::Finished(finished) = &snapshot.operation else { return None };
    (plan.acknowledge.is_some() && finished.kind.is_mutation()).then_some(finished.kind)
}

/// The plan's patch of the metadata.
fn patch(plan: &Plan) -> Option<&MachinePatch> {
    plan.actions.iter().find_map(|action| {
        let Action::PatchMachine(patch) = action else { return None };
        Some(patch)
    })
}

/// The operation that the plan records in the metadata.
fn written_record(plan: &Plan) -> Option<&str> {
    patch(plan)?.annotations.get(OPERATION)?.as_deref()
}

/// Whether this is the first creation, all is well, and the metadata has what must not be lost: the create, or the
/// instance that it made and the initialization that follows. The completion is recorded in the status only.
fn is_in_the_metadata(snapshot: &Snapshot, plan: &Plan, status: &MachineStatus) -> bool {
    let machine = &snapshot.machine;
    let new =
        |it: &MachineStatus| it.machine_phase() == MachinePhase::New && it.operation.is_none();
    let adopts = machine.intent().is_some_and(|it| it.provider_id.is_some());
    let stored = snapshot.stored_status();
    // A driver may need its checkpoint, and keeps nothing once its result is acknowledged.
    let checkpoint = stored.and_then(|it| it.last_known_state.as_ref());
    let first = stored.is_none_or(new)
        && !adopts
        && status.last_known_state.as_ref() == checkpoint
        && !machine.is_deleting()
        && status.retry.is_none()
        && matches!(status.machine_phase(), MachinePhase::New | MachinePhase::Pending);
    if !first {
        return false;
    }
    let record = match written_record(plan) {
        Some(text) => serde_json::from_str::<OperationRecord>(text).ok(),
        None => machine.operation_record(),
    };
    let kind = status.operation.as_ref().and_then(OperationIntent::operation_kind);
    let Some(record) = record else { return false };
    // Compared by id: a written time has no fractions of a second.
    let id = |it: &Option<OperationIntent>| it.as_ref().map(|it| it.id.clone());
    let is_recorded = id(&record.operation) == id(&status.operation);
    let has_id = machine.provider_id().is_some();
    let is_made = (has_id || patch(plan).is_some_and(|patch| patch.provider_id.is_some()))
        && record.creation_started_at.is_some();
    let settled = settled(snapshot, plan);
    let kept = match kind {
        Some(OperationKind::CreateMachine) => is_recorded && settled.is_none(),
        Some(OperationKind::InitializeMachine) => {
            is_recorded
                && is_made
                && settled.is_none_or(|kind| kind == OperationKind::CreateMachine)
        }
        None if status.operation.is_none() => {
            is_made && settled != Some(OperationKind::InitializeMachine)
        }
        _ => false,
    };
    let sends = plan.dispatch.as_ref().map(Dispatch::kind);
    kept && sends.is_none_or(|sent| kind == Some(sent) || !sent.is_mutation())
}
