//! How many Machines a set creates and deletes. INV-11: never more than wanted.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::{
    Machine, MachineSet,
    machine::MachinePhase,
    names::{MACHINE_DEPLOYMENT, annotation::RELEASED_BY, label},
};

use crate::{
    copies, copies::CopiesView, foreign::Foreign, owner::controller, replicas, streak::Streak,
};

use super::{
    Blind, Decision, Snapshot, Victim, is_frozen,
    preserve::{self, Preserved},
    victims,
};

/// Most creations, and most deletions, of Machines in a pass.
pub const BURST: usize = 100;

/// A set creates no more if its drifted and its future Machines together exceed twice its replicas and this margin.
pub const DRIFT_MARGIN: usize = 2;

/// Why a set deviates from its wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// The set has far too many Machines.
    Frozen,
    /// The Machines of the set are updated in place.
    ScaleUpDisabled,
    /// Not all of its Machines are seen.
    Blind(Blind),
    /// Another process runs the set.
    Foreign(Foreign),
    /// Its Machines lose their labels: so many were released and still exist.
    LabelDrift(usize),
    /// The template of which its Machines get copies has not been read yet.
    TemplateUnread,
    /// The garbage collector frees its Machines.
    Orphaning,
    /// The Machines of the set are being deleted.
    Ending,
}

/// The numbers of a decision.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Count {
    pub(super) create: usize,
    pub(super) repeat: Vec<String>,
    pub(super) delete: Vec<Victim>,
    pub(super) blocker: Option<Blocker>,
}

/// Whether a Machine counts: a Machine in deletion does not, however long the deletion takes.
pub fn is_active(machine: &Machine) -> bool {
    !machine.is_deleting() && machine.phase() != MachinePhase::Terminating
}

pub(super) fn wanted(set: &MachineSet) -> usize {
    usize::try_from(set.spec.replicas()).unwrap_or(0)
}

pub(super) fn decide(
    snapshot: &Snapshot,
    claimed: &[Arc<Machine>],
    released: usize,
    preserved: &Preserved,
    streak: &Streak,
) -> Count {
    let Snapshot { set, wishes, unanswered, now, .. } = snapshot;
    let active: Vec<_> = claimed.iter().filter(|machine| is_active(machine)).cloned().collect();
    let wanted = wanted(set);
    let missing = wanted.saturating_sub(active.len());
    let surplus = surplus(snapshot, &active);
    let mut delete = victims::choose(set, &active, surplus, wishes, (preserved, streak), *now);
    delete.truncate(BURST);
    // Names without an answer may be Machines already, and are repeated until it is known.
    let repeat: Vec<_> = unanswered.iter().take(missing).cloned().collect();
    let create = missing.saturating_sub(unanswered.len()).min(BURST);
    let is_told = |blocker: &Blocker| {
        missing > 0 || matches!(blocker, Blocker::Foreign(Foreign::Appeared { .. }))
    };
    match blocker(snapshot, released, active.len() + create).filter(is_told) {
        Some(blocker) => Count { delete, blocker: Some(blocker), ..Count::default() },
        None => Count { create, repeat, delete, blocker: None },
    }
}

fn surplus(snapshot: &Snapshot, active: &[Arc<Machine>]) -> usize {
    let candidates = active.iter().filter(|machine| !victims::is_handed_over(machine)).count();
    // An unseen deletion by us, by the process before or by a process that a user named would be repeated with another
    // Machine.
    let sees = matches!(snapshot.blind, None | Some(Blind::Unreadable(_)))
        && !matches!(snapshot.foreign, Some(Foreign::Named(_)));
    if sees { candidates.saturating_sub(wanted(&snapshot.set)) } else { 0 }
}

/// The replicas of a set without a number. The deployment scales its sets, whose annotations are the deployment's: an
/// absent number is a 0 there.
pub(super) fn fill(snapshot: &Snapshot, claimed: Vec<Arc<Machine>>) -> Decision {
    let set = &snapshot.set;
    // Machines not seen yet would count as well.
    let blind = || snapshot.blind.clone().map(Blocker::Blind);
    if let Some(blocker) = snapshot.foreign.clone().map(Blocker::Foreign).or_else(blind) {
        return Decision { blocker: Some(blocker), claimed, ..Decision::default() };
    }
    let there = claimed.iter().filter(|machine| is_active(machine)).count();
    let wanted = i32::try_from(there + snapshot.unanswered.len()).unwrap_or(i32::MAX);
    let fill = match controller(&set.metadata) {
        Some(_) => replicas::fill(&ObjectMeta::default(), 0, there),
        None => replicas::fill(&set.metadata, wanted, there),
    };
    Decision { fill: Some(fill), claimed, ..Decision::default() }
}

/// Whether the only broken rule of a deployment's set is about the object named in its template: such a set was made
/// before the rule. The deployment replaces the Machines once it has a new template.
pub(super) fn is_outdated(set: &MachineSet, broken: &[String]) -> bool {
    let of_template = copies::refused(&set.metadata, &set.spec.template.spec);
    broken.iter().eq(&of_template)
        && controller(&set.metadata).is_some_and(|owner| owner.kind == MACHINE_DEPLOYMENT)
}

/// Deletions of a set whose template is refused and which therefore makes no Machines: surplus after its deployment,
/// with a new template by now, lowered the set, and no Machine that would need a replacement.
pub(super) fn only_fewer(snapshot: &Snapshot, controlled: &[Arc<Machine>]) -> Vec<Victim> {
    let Snapshot { set, wishes, now, .. } = snapshot;
    let active: Vec<_> = controlled.iter().filter(|machine| is_active(machine)).cloned().collect();
    let surplus = surplus(snapshot, &active);
    let preserved = preserve::decide(set, controlled, wishes);
    let mut delete =
        victims::choose(set, &active, surplus, wishes, (&preserved, &Streak::default()), *now);
    delete.truncate(surplus.min(BURST));
    delete
}

/// Why nothing is created. Machines released in this pass count already.
fn blocker(snapshot: &Snapshot, released: usize, would_have: usize) -> Option<Blocker> {
    let set = &snapshot.set;
    if let Some(foreign) = &snapshot.foreign {
        return Some(Blocker::Foreign(foreign.clone()));
    }
    if is_frozen(set) {
        return Some(Blocker::Frozen);
    }
    if set.label(label::SCALE_UP_DISABLED).is_some() {
        return Some(Blocker::ScaleUpDisabled);
    }
    if let Some(blind) = &snapshot.blind {
        return Some(Blocker::Blind(blind.clone()));
    }
    if snapshot.copies.as_ref().is_some_and(CopiesView::is_unknown) {
        return Some(Blocker::TemplateUnread);
    }
    let drifted = drifted(snapshot) + released;
    let most = 2 * wanted(set) + DRIFT_MARGIN;
    (drifted > 0 && drifted + would_have > most).then_some(Blocker::LabelDrift(drifted))
}

/// Living Machines without a controller, released by this set.
fn drifted(snapshot: &Snapshot) -> usize {
    let uid = snapshot.set.uid();
    let is_drifted = |machine: &&Arc<Machine>| {
        let left = machine.annotation(RELEASED_BY) == Some(uid);
        left && !machine.is_deleting() && controller(&machine.metadata).is_none()
    };
    snapshot.machines.iter().filter(is_drifted).count()
}
