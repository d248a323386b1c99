//! The Machines to delete. INV-14: exactly the marked or chosen Machines, in one total order; a Machine in deletion is
//! never chosen again.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use ostler_api::{
    Machine, MachineSet,
    machine::MachinePhase,
    names::annotation::{
        DEFAULT_PRIORITY, DELETE_MACHINE, DELETE_POLICY, MARKED_FOR_DELETION, PRESERVE, PRIORITY,
        REPLICAS_CHANGED_BY_SCALER,
    },
    names::label::UPDATE_RESULT,
};

use super::preserve::{self, AUTO, NodeWish, Preserved, Wish};
use crate::{digest, hint, streak::Streak};

/// A Machine to delete.
#[derive(Debug, Clone, PartialEq)]
pub struct Victim {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// Why the Machine is deleted.
    pub cause: Cause,
}

/// Why a Machine goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There are too many.
    Surplus,
    /// An autoscaler chose the Machine.
    Marked,
    /// The infrastructure announced the end of its instance.
    TerminationNotice,
    /// It is Failed and to be replaced.
    Failed,
    /// The set is deleted.
    SetGone,
}

/// Which of equal Machines goes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The oldest.
    #[default]
    Oldest,
    /// The newest.
    Newest,
    /// Any, and the same one in each pass.
    Random,
}

impl Policy {
    /// The policy in a set's annotation.
    pub fn of(set: &MachineSet) -> Self {
        Self::named(set.annotation(DELETE_POLICY))
    }

    /// The policy of this name; any other name is as none.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("Newest") => Self::Newest,
            Some("Random") => Self::Random,
            _ => Self::Oldest,
        }
    }
}

/// The place of a Machine in the order: the lowest goes first. The name decides last, so no two are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Preserved Machines stay: longest on a user's request, then by the end of the preservation.
    preserved: Option<(bool, Timestamp)>,
    priority: i64,
    /// Older marks first; no mark last.
    mark: (bool, Option<Timestamp>),
    phase: u8,
    age: Age,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Oldest(Option<Timestamp>),
    Newest(Reverse<Option<Timestamp>>),
    Random(String),
}

impl Rank {
    /// The place of a Machine.
    pub fn of(machine: &Machine, policy: Policy, now: Timestamp) -> Self {
        let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let explicit = machine.annotation(PRESERVE) != Some(AUTO);
        let until = preserve::until(machine).filter(|until| *until > now);
        let mark = mark(machine);
        Self {
            preserved: until.map(|until| (explicit, until)),
            priority: priority(machine),
            mark: (mark.is_none(), mark),
            phase: phase(&machine.phase()),
            age: match policy {
                Policy::Oldest => Age::Oldest(created),
                Policy::Newest => Age::Newest(Reverse(created)),
                Policy::Random => Age::Random(digest::of_text(machine.uid())),
            },
            name: machine.name().to_owned(),
        }
    }
}

/// An update in place says nothing about a Machine's worth: the Machine counts as running.
const fn phase(phase: &MachinePhase) -> u8 {
    match phase {
        MachinePhase::Terminating => 0,
        MachinePhase::Failed => 1,
        MachinePhase::CrashLoopBackOff => 2,
        MachinePhase::Unknown => 3,
        MachinePhase::New | MachinePhase::Pending => 4,
        MachinePhase::Available => 5,
        MachinePhase::Running
        | MachinePhase::InPlaceUpdating
        | MachinePhase::InPlaceUpdateSuccessful
        | MachinePhase::InPlaceUpdateFailed
        | MachinePhase::Other(_) => 6,
    }
}

/// The lowest goes first. A mark of Cluster API counts as the lowest that autoscalers give.
fn priority(machine: &Machine) -> i64 {
    let usual = DEFAULT_PRIORITY.parse().unwrap_or(3);
    let own = machine.annotation(PRIORITY).and_then(|text| text.trim().parse().ok());
    let own = own.unwrap_or(usual);
    if machine.annotation(DELETE_MACHINE).is_some() { own.min(1) } else { own }
}

fn mark(machine: &Machine) -> Option<Timestamp> {
    machine.annotation(MARKED_FOR_DELETION)?.parse().ok()
}

/// Whether an autoscaler chose this Machine and then lowered the replicas. In any order of the autoscaler's writes,
/// exactly the marked Machines are deleted (#965, #1078, #1087).
fn is_marked(machine: &Machine, set: &MachineSet) -> bool {
    let changed = || set.annotation(REPLICAS_CHANGED_BY_SCALER)?.parse::<Timestamp>().ok();
    machine.annotation(PRIORITY) == Some("1")
        && mark(machine).zip(changed()).is_some_and(|(marked, changed)| marked <= changed)
}

/// Whether a Failed Machine is to be replaced: no user and no set keeps it. While the Node cannot be read, its wish is
/// unknown, and the Machine stays.
fn is_given_up(
    machine: &Machine,
    node: Option<&NodeWish>,
    preserved: &Preserved,
    now: Timestamp,
) -> bool {
    if machine.phase() != MachinePhase::Failed || preserved.adds(machine.uid()) {
        return false;
    }
    match preserve::until(machine) {
        Some(until) => until <= now,
        None => matches!(preserve::wish(machine, node), Wish::None | Wish::Refuse),
    }
}

/// Whether a MachineDeployment just moved the Machine here after an update in place: the Machine neither makes others
/// go, nor goes itself.
pub(super) fn is_handed_over(machine: &Machine) -> bool {
    machine.label(UPDATE_RESULT) == Some("successful")
}

/// The Machines that go whatever the number of the others, and then as many as are too many.
pub(super) fn choose(
    set: &MachineSet,
    active: &[Arc<Machine>],
    surplus: usize,
    wishes: &BTreeMap<String, NodeWish>,
    (preserved, streak): (&Preserved, &Streak),
    now: Timestamp,
) -> Vec<Victim> {
    let policy = Policy::of(set);
    let cause = |machine: &Machine| {
        if is_marked(machine, set) {
            return Some(Cause::Marked);
        }
        let kept =
            preserved.adds(machine.uid()) || preserve::until(machine).is_some_and(|it| it > now);
        if hint::is_to_be_replaced(machine, now) && !kept {
            return Some(Cause::TerminationNotice);
        }
        let given_up = is_given_up(machine, wishes.get(machine.uid()), preserved, now);
        (given_up && !streak.holds(machine)).then_some(Cause::Failed)
    };
    // Without a surplus, only the Machines to be deleted anyway are compared.
    let mut ranked: Vec<_> = active
        .iter()
        .map(|machine| (machine, cause(machine)))
        .filter(|(_, cause)| surplus > 0 || cause.is_some())
        .map(|(machine, cause)| (Rank::of(machine, policy, now), machine, cause))
        .collect();
    ranked.sort_by(|one, other| one.0.cmp(&other.0));
    // Machines to be deleted anyway count towards the surplus.
    let counts =
        |machine: &Machine, cause: Option<Cause>| cause.is_some() && !is_handed_over(machine);
    let anyhow = ranked.iter().filter(|(_, machine, cause)| counts(machine, *cause)).count();
    let mut left = surplus.saturating_sub(anyhow);
    let victims = ranked.into_iter().filter_map(|(_, machine, cause)| {
        let too_much = || {
            let goes = left > 0 && !is_handed_over(machine);
            left -= usize::from(goes);
            goes.then_some(Cause::Surplus)
        };
        cause.or_else(too_much).map(|cause| Victim { machine: machine.clone(), cause })
    });
    victims.collect()
}
