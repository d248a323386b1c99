//! What "there is no instance" proves. A driver finds what it made by its tags. Of an instance that
//! another controller made, and that was never adopted, it may know nothing while it runs: there
//! "none" is a doubt, upon which nothing is failed, replaced or forgotten.

use ostler_api::{
    driver::{ErrorCode, OperationKind},
    machine::{Machine, MachinePhase, MachineStatus, WaitReason},
};

use super::{
    instance,
    own_instance::{carries_own_uid, was_begun_elsewhere},
    pass::Pass,
    retry,
};
use crate::{
    cluster::ClusterIds,
    snapshot::{AdoptByName, ClassFacts, DriverView, Snapshot},
    time::after,
};

/// How long after the first "none" a driver is asked again for what runs, and for the deletion of a Machine
/// that was never adopted: lists of infrastructures lag behind.
pub(crate) const SECOND_LOOK: std::time::Duration = std::time::Duration::from_mins(1);

/// Whether "none" proves that there is none: of a Machine whose instance we made, began to make or
/// adopted, and of one that the core did nothing for yet. Not under another cluster id than it was
/// made with: what has that is a stranger's to the driver.
///
/// `by_name`: the driver puts no tags on what it adopts, so that it proves only what the core itself had made.
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

/// No controller began to make anything; one that we gave up before that says why.
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

/// Whether the driver was asked by id and said "none", and is to be asked by name.
pub(crate) fn is_asked_again(status: &MachineStatus) -> bool {
    status.retry.as_ref().is_some_and(|retry| {
        retry.reason == WaitReason::AbsenceUnconfirmed
            && retry.kind == OperationKind::DeleteMachine.into()
    })
}

/// Takes "none" as the answer to a deletion. True: the instance is gone.
pub(crate) fn accept(pass: &mut Pass<'_>) -> bool {
    // Lists may not have yet what was made moments ago, and without tags it is no orphan that could be deleted.
    let unanswered = pass.provider_id().is_none() && pass.status.creation_spec_digest.is_some();
    let early = is_by_name(pass.snap) && (unanswered || instance::catching_up(pass).is_some());
    let proof = proves(pass.snap, &pass.status) && !early;
    if proof || is_asked_again(&pass.status) {
        return true;
    }
    let text = "the driver finds no instance, and did not make this machine's, or only just now: it is asked \
                once more, by the name of the machine";
    let until = after(pass.snap.now, SECOND_LOOK);
    let (kind, reason) = (OperationKind::DeleteMachine, WaitReason::AbsenceUnconfirmed);
    retry::wait_until(pass, kind, ErrorCode::NotFound, reason, text, until);
    false
}
