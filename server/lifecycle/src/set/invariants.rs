//! Forbidden plans for a set: asserted in every pass of a debug build, and checked by tests.

use std::{collections::BTreeSet, fmt};

use super::{Decision, Snapshot, count, is_active};
use crate::owner::{controller, is_controlled_by, is_in_reserve};

/// An invariant that a plan would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetViolation {
    /// INV-11: more Machines than wanted.
    TooMany,
    /// INV-13: a Machine gets a second controller, or loses a foreign controller.
    SecondController,
    /// INV-14: a Machine is deleted twice, or is not the set's.
    WrongVictim,
}

impl fmt::Display for SetViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "INV-11: more machines than wanted",
            Self::SecondController => "INV-13: a machine has one controller",
            Self::WrongVictim => "INV-14: exactly the chosen machines go, each once",
        })
    }
}

/// Checks a plan against all of them.
pub fn check(snapshot: &Snapshot, plan: &Decision) -> Result<(), SetViolation> {
    let checks = [
        (inv_11_no_more_than_wanted(snapshot, plan), SetViolation::TooMany),
        (inv_13_one_controller(snapshot, plan), SetViolation::SecondController),
        (inv_14_the_chosen_go_once(snapshot, plan), SetViolation::WrongVictim),
    ];
    checks.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, broken)| Err(broken))
}

/// INV-11: existing, possible and new Machines are not more than wanted; and nothing is created while unseen Machines
/// may exist, or another process creates some.
pub(super) fn inv_11_no_more_than_wanted(snapshot: &Snapshot, plan: &Decision) -> bool {
    if plan.create == 0 && plan.repeat.is_empty() && plan.take.is_empty() {
        return true;
    }
    let active = plan.claimed.iter().filter(|machine| is_active(machine)).count();
    let unanswered = if plan.create > 0 || !plan.take.is_empty() {
        snapshot.unanswered.len()
    } else {
        plan.repeat.len()
    };
    snapshot.blind.is_none()
        && snapshot.foreign.is_none()
        && active + unanswered + plan.take.len() + plan.create <= count::wanted(&snapshot.set)
        && !snapshot.set.is_deleting()
}

/// INV-13: only Machines without a controller are adopted, only reserve Machines are taken, and only the set's own are
/// released.
pub(super) fn inv_13_one_controller(snapshot: &Snapshot, plan: &Decision) -> bool {
    let uid = snapshot.set.uid();
    plan.adopt.iter().all(|machine| controller(&machine.metadata).is_none())
        && plan.take.iter().all(|machine| is_in_reserve(&machine.metadata))
        && plan.release.iter().all(|machine| is_controlled_by(&machine.metadata, uid))
}

/// INV-14: a victim is one of the set's Machines, is not going already, and is named once.
pub(super) fn inv_14_the_chosen_go_once(_: &Snapshot, plan: &Decision) -> bool {
    let mut seen = BTreeSet::new();
    plan.delete.iter().all(|victim| {
        let uid = victim.machine.uid();
        !victim.machine.is_deleting()
            && seen.insert(uid)
            && plan.claimed.iter().any(|machine| machine.uid() == uid)
    })
}
