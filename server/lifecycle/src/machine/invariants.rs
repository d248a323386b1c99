//! Forbidden situations, as functions of the snapshot and the planned actions. Checked by assertion in every pass of a
//! debug build, and by tests and the simulation.
//!
//! INV-5 is kept by drivers (every operation names the identity), INV-7 by the sessions; INV-9 and
//! INV-10 are properties of the code, and have tests.

use std::fmt;

use jiff::Timestamp;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{DrainPurpose, MachinePhase, MachineStatus},
    names,
};

use super::{abandoning, absence, instance::is_own_create, own_instance, pooled, releasing};
use crate::{
    digest, node,
    operation::{Dispatch, Finished, InstanceRecord, OperationView, Request, Success},
    plan::{Action, Plan},
    snapshot::{DriverView, Snapshot},
};

/// An invariant that a plan would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// INV-1: a create while another may be running, or while an instance may exist.
    SecondInstance,
    /// INV-2: the result of a create is acknowledged and the instance written down nowhere.
    ForgottenInstance,
    /// INV-3: the finalizer goes although no driver said that the instance is gone.
    EarlyFinalizer,
    /// INV-4: an instance is deleted whose Node is not drained.
    UndrainedNode,
    /// INV-6: a spec counts as applied that no driver reported as applied.
    UnprovenSpec,
    /// INV-8: an operation is sent that is not written down, or an unknown outcome is forgotten.
    LostOperation,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SecondInstance => "INV-1: a create while an instance may exist",
            Self::ForgottenInstance => "INV-2: an instance is written down nowhere",
            Self::EarlyFinalizer => "INV-3: the finalizer goes before the instance",
            Self::UndrainedNode => "INV-4: the instance goes before its pods",
            Self::UnprovenSpec => "INV-6: a spec counts as applied without proof",
            Self::LostOperation => "INV-8: an operation is not accounted for",
        })
    }
}

/// True: the invariant holds.
type Check = fn(&Snapshot, &Plan) -> bool;

/// Checks a plan against all of them.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Result<(), Violation> {
    let checks: [(Check, Violation); 6] = [
        (inv_1_one_instance, Violation::SecondInstance),
        (inv_2_no_forgotten_instance, Violation::ForgottenInstance),
        (inv_3_finalizer_last, Violation::EarlyFinalizer),
        (inv_4_drain_first, Violation::UndrainedNode),
        (inv_6_applied_is_proven, Violation::UnprovenSpec),
        (inv_8_no_lost_operation, Violation::LostOperation),
    ];
    match checks.iter().find(|(holds, _)| !holds(snapshot, plan)) {
        Some((_, violation)) => Err(*violation),
        None => Ok(()),
    }
}

fn sends(plan: &Plan, kind: OperationKind) -> bool {
    plan.dispatch.as_ref().is_some_and(|dispatch| dispatch.kind() == kind)
}

const fn finished(snapshot: &Snapshot) -> Option<&Finished> {
    if let OperationView::Finished(finished) = &snapshot.operation { Some(finished) } else { None }
}

fn status(snapshot: &Snapshot) -> MachineStatus {
    snapshot.machine.recorded_status()
}

/// INV-1: a create is sent only right after a driver said that there is no instance, or to a driver
/// that cannot say so and finds the instance by identity, or to name the instance of another
/// identity that was just found; and never while something is in flight.
pub fn inv_1_one_instance(snapshot: &Snapshot, plan: &Plan) -> bool {
    if !sends(plan, OperationKind::CreateMachine) {
        return true;
    }
    let cannot_read = match &snapshot.driver {
        DriverView::Ready(driver) => !driver.has(OperationKind::GetMachineStatus),
        DriverView::Unavailable | DriverView::NotReady(_) => return false,
    };
    match &snapshot.operation {
        OperationView::InFlight(_) | OperationView::Expected(_) => false,
        OperationView::Idle => cannot_read,
        OperationView::Finished(finished) => match &finished.outcome {
            Ok(Success::Read(record)) => is_adoption(snapshot, plan, record),
            Ok(_) => false,
            Err(failure) => {
                cannot_read
                    || (finished.kind == OperationKind::GetMachineStatus
                        && matches!(failure.code, ErrorCode::NotFound | ErrorCode::Unimplemented))
            }
        },
    }
}

/// Whether the create that is sent names the instance that a read found, which carries no identity,
/// that of a life before, or a previous cluster id.
fn is_adoption(snapshot: &Snapshot, plan: &Plan, record: &InstanceRecord) -> bool {
    let named = plan.dispatch.as_ref().map(|dispatch| &dispatch.request);
    let Some(Request::Create { provider_id, .. }) = named else { return false };
    !provider_id.is_empty()
        && *provider_id == record.provider_id
        && (record.machine_uid != snapshot.machine.uid()
            || snapshot.cluster.was(&record.cluster_id))
}

/// INV-2: a pass that acknowledges a created instance has its id in the Machine, or the intent in its status, or is
/// deleting it.
pub fn inv_2_no_forgotten_instance(snapshot: &Snapshot, plan: &Plan) -> bool {
    let created = finished(snapshot)
        .filter(|finished| plan.acknowledge.as_ref() == Some(&finished.id))
        .is_some_and(|finished| matches!(finished.outcome, Ok(Success::Created(_))));
    !created
        || snapshot.machine.provider_id().is_some()
        || snapshot.machine.is_deleting()
        || plan.status.operation.is_some()
        || patches(plan).any(|patch| patch.provider_id.is_some())
        || is_odd(snapshot)
}

/// The record of the instance cannot be right, so it is looked up again by identity.
fn is_odd(snapshot: &Snapshot) -> bool {
    finished(snapshot).is_some_and(|finished| match &finished.outcome {
        Ok(Success::Created(record)) => {
            record.provider_id.is_empty()
                || snapshot.provider_id_holder.is_some()
                || !is_own_create(&snapshot.machine, finished, record)
        }
        Ok(_) | Err(_) => false,
    })
}

fn patches(plan: &Plan) -> impl Iterator<Item = &crate::plan::MachinePatch> {
    plan.actions.iter().filter_map(|action| {
        if let Action::PatchMachine(patch) = action { Some(patch) } else { None }
    })
}

/// INV-3: the finalizer goes only in the pass that settles a deletion (where the driver found nothing
/// of a Machine that was never adopted: the second one; where it found nothing after a create of unknown outcome: one that
/// began once the infrastructure shows what is there), for a Machine whose instance
/// the driver called not ours and the operator abandoned, for one of a pool that said that the instance is gone, or that
/// is gone itself, or for one for which nothing was ever asked of a driver.
pub fn inv_3_finalizer_last(snapshot: &Snapshot, plan: &Plan) -> bool {
    if !plan.actions.contains(&Action::RemoveFinalizer) {
        return true;
    }
    let absent = || {
        let status = status(snapshot);
        let begun = status.operation.as_ref().and_then(|it| it.started_at.as_ref());
        let begun = begun.map_or(snapshot.now, |time| time.0);
        let shown = absence::shown_at(&status, &snapshot.driver).is_none_or(|shown| begun >= shown);
        shown && (absence::proves(snapshot, &status) || absence::is_asked_again(&status))
    };
    let gone = finished(snapshot).is_some_and(|finished| {
        finished.kind == OperationKind::DeleteMachine
            && match &finished.outcome {
                Ok(Success::Deleted { was_absent: true }) => absent(),
                Ok(_) => true,
                Err(failure) => failure.code == ErrorCode::NotFound && absent(),
            }
    });
    let abandoned = abandoning::named(&snapshot.machine, &status(snapshot)).is_some();
    let known = releasing::recorded(&status(snapshot)).is_some();
    gone || known || abandoned || pooled::is_gone(snapshot) || !was_ever_asked(snapshot)
}

fn was_ever_asked(snapshot: &Snapshot) -> bool {
    let status = status(snapshot);
    snapshot.machine.provider_id().is_some()
        || snapshot.machine.operation_record().is_some()
        || own_instance::was_begun_elsewhere(&snapshot.machine)
        || status.operation.is_some()
        || status.creation_started_at.is_some()
        || !matches!(status.machine_phase(), MachinePhase::New | MachinePhase::Terminating)
}

/// INV-4: the instance of a Node goes only after the drain, after its deadline, or by force.
pub fn inv_4_drain_first(snapshot: &Snapshot, plan: &Plan) -> bool {
    if !sends(plan, OperationKind::DeleteMachine) {
        return true;
    }
    let ours = snapshot.node.all().into_iter().any(|node| {
        node::is_ours(&snapshot.machine, snapshot.machine.instance_id(), node, snapshot.ids.by())
            && !own_instance::is_by_spec_only(snapshot, &plan.status, node)
    });
    let drain = plan.status.drain.as_ref();
    let drained = drain.is_some_and(|it| it.finished && it.purpose() == DrainPurpose::Deletion);
    !ours || drained || snapshot.machine.wants_force() || is_overdue(plan, snapshot.now)
}

fn is_overdue(plan: &Plan, now: Timestamp) -> bool {
    let deadline = plan.status.drain.as_ref().and_then(|drain| drain.deadline.as_ref());
    deadline.is_some_and(|deadline| now >= deadline.0)
}

/// INV-6: the annotation is set only to the spec that the finished operation was about.
pub fn inv_6_applied_is_proven(snapshot: &Snapshot, plan: &Plan) -> bool {
    let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC;
    let Some(Some(text)) = patches(plan).find_map(|patch| patch.annotations.get(key)) else {
        return true;
    };
    let intent = status(snapshot).operation;
    let applied = finished(snapshot).is_some_and(|finished| {
        matches!(finished.outcome, Ok(Success::Created(_) | Success::Updated { .. }))
    });
    let digest = digest::of_text(text);
    applied
        && intent.is_some_and(|intent| {
            intent.spec_digest.as_ref().is_some_and(|it| it == digest.as_str())
        })
}

/// INV-8: a sent mutation stands in the status, and a mutation of unknown outcome stays there until it is resolved.
pub fn inv_8_no_lost_operation(snapshot: &Snapshot, plan: &Plan) -> bool {
    let written = plan.status.operation.as_ref().map(|intent| &intent.id);
    let sent = plan.dispatch.as_ref().filter(|dispatch| dispatch.kind().is_mutation());
    if let Some(dispatch) = sent {
        return written == Some(&dispatch.id) && is_recorded(snapshot, plan, dispatch);
    }
    let intent = status(snapshot).operation;
    let unknown = finished(snapshot).is_some_and(|finished| {
        finished.kind.is_mutation()
            && intent.as_ref().is_some_and(|intent| intent.id == finished.id)
            && finished.outcome.as_ref().is_err_and(|failure| {
                failure.certainty == Certainty::Unknown
                    && may_have_changed(finished.kind, failure.code)
            })
    });
    !unknown || written.is_some()
}

/// A create that may make an instance stands in the metadata as well, where no client erases it.
fn is_recorded(snapshot: &Snapshot, plan: &Plan, dispatch: &Dispatch) -> bool {
    let makes =
        dispatch.kind() == OperationKind::CreateMachine && snapshot.machine.provider_id().is_none();
    let key = names::annotation::OPERATION;
    !makes
        || snapshot.machine.operation_record().is_some_and(|record| record.operation.is_some())
        || patches(plan).any(|patch| patch.annotations.contains_key(key))
}

/// Codes that say for themselves that there is nothing to look up.
const fn may_have_changed(kind: OperationKind, code: ErrorCode) -> bool {
    !matches!(
        (kind, code),
        (OperationKind::DeleteMachine | OperationKind::InitializeMachine, ErrorCode::NotFound)
            | (
                OperationKind::InitializeMachine | OperationKind::UpdateMachine,
                ErrorCode::Unimplemented
            )
            | (OperationKind::UpdateMachine, ErrorCode::FailedPrecondition)
    )
}
