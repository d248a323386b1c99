//! The meaning of "there is no instance" as a proof. A driver finds its instances by tags. An instance of another
//! controller, never adopted, may run unknown to the driver: there "none" is a doubt, for which no Machine is failed,
//! replaced or forgotten. The same holds after a create of unknown outcome, for as long as the infrastructure may not
//! show the new instance.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{
    driver::{ErrorCode, OperationKind},
    machine::{Machine, MachinePhase, MachineStatus, OperationIntent, WaitReason},
};

use super::{
    instance,
    own_instance::{carries_own_uid, was_begun_elsewhere},
    pass::Pass,
    retry,
};
use crate::{
    cluster::ClusterIds,
    snapshot::{AdoptByName, ClassFacts, DriverFacts, DriverView, Snapshot},
    time::after,
};

/// How long after the first "none" a driver is asked again for what runs, and for the deletion of a Machine
/// that was never adopted: lists of infrastructures lag behind.
pub(crate) const SECOND_LOOK: Duration = Duration::from_mins(1);

/// Whether "none" proves the absence: for a Machine whose instance we made, began to make or adopted, and for a Machine
/// without any action of the core yet. Not under another cluster id than at the creation: such an instance is a
/// stranger's to the driver.
///
/// `by_name`: the driver puts no tags on adopted instances, so "none" proves the absence only of instances made by the
/// core.
pub fn is_proof(
    machine: &Machine,
    status: &MachineStatus,
    cluster: &ClusterIds,
    by_name: bool,
) -> bool {
    let tagged = !by_name && carries_own_uid(machine, status);
    let ours = tagged || status.creation_started_at.is_some() || instance::was_made(status);
    (ours || is_fresh(machine, status)) && !has_moved(status, cluster)
}

/// Whether "none" proves that there is none, from what a pass sees.
pub(crate) fn proves(snap: &Snapshot, status: &MachineStatus) -> bool {
    is_proof(&snap.machine, status, &snap.cluster, is_by_name(snap))
}

fn is_by_name(snap: &Snapshot) -> bool {
    matches!(&snap.driver, DriverView::Ready(driver) if driver.by_name)
}

/// Whether the instance carries a cluster id that this core does not know.
fn has_moved(status: &MachineStatus, cluster: &ClusterIds) -> bool {
    let carried = status.instance_cluster_id.as_deref().filter(|id| !id.is_empty());
    carried.is_some_and(|id| !cluster.has(id))
}

/// No controller began a creation. A Machine given up before has a failure reason.
fn is_fresh(machine: &Machine, status: &MachineStatus) -> bool {
    let untouched = !was_begun_elsewhere(machine)
        && matches!(status.machine_phase(), MachinePhase::New | MachinePhase::Terminating);
    machine.provider_id().is_none() && (untouched || status.failure_reason.is_some())
}

/// Why nothing is made though the driver finds nothing: another controller may have made an instance for this
/// Machine. `None`: no controller did, or the operator said what to do.
pub(crate) fn doubt(pass: &Pass<'_>, class: &ClassFacts) -> Option<(WaitReason, &'static str)> {
    if proves(pass.snap, &pass.status) {
        return None;
    }
    if has_moved(&pass.status, &pass.snap.cluster) {
        let text = "the instance carries the cluster id in status.instanceClusterID, which this core does not know: \
                    nothing is made in its place; start the core with --previous-cluster-ids";
        return Some((WaitReason::ClusterIdChanged, text));
    }
    if pass.provider_id().is_some() {
        let text = "the driver finds no instance of this provider id, and never made one for this machine: \
                    nothing is made in its place; if the instance is gone, delete the machine";
        return Some((WaitReason::AbsenceUnconfirmed, text));
    }
    let undecided = pass.snap.settings.adopt_by_name(class) == AdoptByName::Undecided;
    undecided.then_some((
        WaitReason::AdoptionUndecided,
        "another controller began this machine, and may have made its instance: set annotation \
         ostler.dev/adopt-by-name on the class to \"true\" (take over what has its name) or \"false\"",
    ))
}

/// Whether the driver was asked and said "none", and is to be asked once more.
pub(crate) fn is_asked_again(status: &MachineStatus) -> bool {
    status.retry.as_ref().is_some_and(|retry| {
        retry.reason == WaitReason::AbsenceUnconfirmed
            && retry.kind == OperationKind::DeleteMachine.into()
    })
}

/// Until when an infrastructure may not show what a create made whose outcome is not known: "none" before that proves
/// nothing. `None`: each create has a known outcome.
pub(crate) fn shown_at(status: &MachineStatus, driver: &DriverView) -> Option<Timestamp> {
    let since = status.creation_unconfirmed_since.as_ref()?;
    let facts = if let DriverView::Ready(facts) = driver { Some(facts) } else { None };
    Some(after(since.0, DriverFacts::list_lag_of(facts)))
}

/// The intent ends without an answer of the driver that got it. Of a create, "none" proves nothing yet.
pub(crate) fn lose_intent(pass: &mut Pass<'_>, intent: Option<&OperationIntent>) {
    let creates = |it: &&OperationIntent| it.operation_kind() == Some(OperationKind::CreateMachine);
    let Some(intent) = intent.filter(creates) else { return };
    // After an answer of unknown outcome, the doubt counts from the answer.
    if !intent.outcome_unknown || pass.status.creation_unconfirmed_since.is_none() {
        instance::doubt_creation(pass);
    }
}

/// When a driver that finds no instance is asked to make another: a driver with a list lag may not yet find the
/// instance of the last create.
pub(crate) fn made_again_at(pass: &Pass<'_>) -> Option<Timestamp> {
    let DriverView::Ready(DriverFacts { list_lag: Some(_), .. }) = pass.snap.driver else {
        return None;
    };
    shown_at(&pass.status, &pass.snap.driver).filter(|until| pass.snap.now < *until)
}

/// Takes "none" as the answer to a deletion that was begun at this time. True: there is no instance.
pub(crate) fn accept(pass: &mut Pass<'_>, begun: Timestamp) -> bool {
    let shown = shown_at(&pass.status, &pass.snap.driver).filter(|shown| begun < *shown);
    let (text, until) = if let Some(shown) = shown {
        let text = format!(
            "the driver finds no instance; what the last create made is not known, and the infrastructure may not show it \
             yet: the driver is asked once more at {shown}"
        );
        (text, shown)
    } else {
        // Without tags, an instance that the driver's lists do not show yet is no orphan that could be deleted.
        let early = is_by_name(pass.snap) && instance::catching_up(pass).is_some();
        let proof = proves(pass.snap, &pass.status) && !early;
        if proof || is_asked_again(&pass.status) {
            return true;
        }
        let text = "the driver finds no instance, and did not make this machine's, or only just now: it is asked \
                    once more, by the name of the machine";
        (text.to_owned(), after(pass.snap.now, SECOND_LOOK))
    };
    let (kind, reason) = (OperationKind::DeleteMachine, WaitReason::AbsenceUnconfirmed);
    retry::wait_until(pass, kind, ErrorCode::NotFound, reason, &text, until);
    false
}
