//! Which status need not be written by the pass that finds it, because a later write of the same Machine is due
//! within moments, and nothing is lost if the core dies before it.
//!
//! Written in time in any case: an operation before it is sent, and the result of a mutation before it is
//! acknowledged. The first create stands in annotation [`OPERATION`] with the finalizer, so that the status beside it
//! tells people what they see two seconds later as well.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{
    driver::OperationKind,
    machine::{MachinePhase, MachineStatus, OperationRecord},
    names::annotation::OPERATION,
};

use crate::{
    machine::pass::after,
    operation::OperationView,
    plan::{Action, Plan},
    snapshot::Snapshot,
};

/// How long a status waits for the next write. Long enough for a fast driver to answer, short enough that a slow one
/// is seen to work.
const PATIENCE: Duration = Duration::from_secs(2);

/// A status that the Machine has for the core and not in the API.
#[derive(Debug, Clone, PartialEq)]
pub struct Unwritten {
    /// What the API has. The unwritten status is void once that is something else.
    pub stored: Option<MachineStatus>,
    /// What is to be written.
    pub status: MachineStatus,
    /// Since when.
    pub since: Timestamp,
}

impl Unwritten {
    /// When it is written at the latest.
    pub(crate) fn due(&self) -> Timestamp {
        after(self.since, PATIENCE)
    }
}

/// The status to keep instead of writing it; `None`: it is to be written.
pub(crate) fn keep(snapshot: &Snapshot, plan: &Plan, status: &MachineStatus) -> Option<Unwritten> {
    let before = snapshot.unwritten.as_ref();
    let kept = Unwritten {
        stored: snapshot.stored_status().cloned(),
        status: status.clone(),
        since: before.map_or(snapshot.now, |it| it.since),
    };
    let may = snapshot.now < kept.due()
        && !plan.events.iter().any(|event| event.warning)
        && !settles_mutation(snapshot, plan)
        && (plan.status_waits && plan.dispatch.is_none() || first_create(snapshot, plan, status));
    may.then_some(kept)
}

fn settles_mutation(snapshot: &Snapshot, plan: &Plan) -> bool {
    let OperationView::Finished(finished) = &snapshot.operation else { return false };
    plan.acknowledge.is_some() && finished.kind.is_mutation()
}

/// Whether the Machine is being created for the first time, all is well, and the create stands in its annotation.
fn first_create(snapshot: &Snapshot, plan: &Plan, status: &MachineStatus) -> bool {
    let machine = &snapshot.machine;
    let written = plan.actions.iter().find_map(|action| {
        let Action::PatchMachine(patch) = action else { return None };
        patch.annotations.get(OPERATION)?.as_deref()
    });
    let record = match written {
        Some(text) => serde_json::from_str::<OperationRecord>(text).ok(),
        None => machine.operation_record(),
    };
    let creates = |kind: Option<OperationKind>| kind == Some(OperationKind::CreateMachine);
    let new = snapshot
        .stored_status()
        .is_none_or(|it| it.machine_phase() == MachinePhase::New && it.operation.is_none());
    new && !machine.is_deleting()
        && status.retry.is_none()
        && matches!(status.machine_phase(), MachinePhase::New | MachinePhase::Pending)
        && status.operation.as_ref().is_some_and(|it| creates(it.operation_kind()))
        && record.is_some_and(|record| record.operation == status.operation)
        && plan.dispatch.as_ref().is_none_or(|it| creates(Some(it.kind())))
}
