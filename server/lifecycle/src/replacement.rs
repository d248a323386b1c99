//! The replacement budget: at most one Machine of a MachineDeployment is on its way from failed
//! health to a healthy successor, and a Machine that is stuck on that way does not block the
//! others.
//!
//! Members of a MachineDeployment are those with the same label `name`; a Machine without it has no
//! budget to wait for.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine::{Machine, MachinePhase, WaitReason};

use crate::{machine::pass::after, snapshot::Settings};

/// The other members of a MachineDeployment, as far as they matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Siblings {
    /// When a member last failed its health, as far as this core remembers.
    pub last_failure: Option<Timestamp>,
    /// Members that are neither healthy nor waiting for this budget themselves.
    pub in_flight: Vec<Sibling>,
}

/// A member that is being made, replaced or updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its name.
    pub name: String,
    /// What is with it.
    pub state: SiblingState,
    /// Until when it holds the budget at the longest; in the past: it is stuck.
    pub holds_until: Timestamp,
}

/// What is with a sibling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiblingState {
    /// Is to become a Node.
    Creating,
    /// Is to become a Node, and quota or capacity is short. It holds nothing.
    LacksCapacity,
    /// Is updated in place.
    Updating,
    /// Given up, and not replaced yet.
    Failed,
    /// Being deleted.
    Terminating,
}

impl SiblingState {
    const fn words(self) -> &'static str {
        match self {
            Self::Creating => "is being created",
            Self::LacksCapacity => "waits for capacity",
            Self::Updating => "is being updated",
            Self::Failed => "is failed and not replaced yet",
            Self::Terminating => "is being deleted",
        }
    }
}

impl Sibling {
    /// Reads a member; `None`: it does not matter to the budget. Healthy ones do not, unhealthy
    /// ones wait for it themselves, and preserved ones stay as they are for days.
    pub fn of(machine: &Machine, settings: &Settings) -> Option<Self> {
        let (state, since, patience) = if machine.is_deleting() {
            let since = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
            (SiblingState::Terminating, since, settings.creation_timeout)
        } else {
            Self::living(machine, settings)?
        };
        let born = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = since.or(born).unwrap_or(Timestamp::MIN);
        let stuck = state == SiblingState::LacksCapacity;
        let holds_until = if stuck { Timestamp::MIN } else { after(since, patience) };
        Some(Self { name: machine.name().to_owned(), state, holds_until })
    }

    fn living(
        machine: &Machine,
        settings: &Settings,
    ) -> Option<(SiblingState, Option<Timestamp>, Duration)> {
        let status = machine.status.as_ref();
        let current = status.and_then(|status| status.current_status.as_ref());
        let since = current.and_then(|current| current.last_update_time.as_ref()).map(|at| at.0);
        match machine.phase() {
            MachinePhase::Running
            | MachinePhase::Unknown
            | MachinePhase::Available
            | MachinePhase::InPlaceUpdateSuccessful
            | MachinePhase::InPlaceUpdateFailed => None,
            MachinePhase::Failed if current?.preserve_expiry_time.is_some() => None,
            MachinePhase::Failed => Some((SiblingState::Failed, since, settings.creation_timeout)),
            MachinePhase::InPlaceUpdating => {
                Some((SiblingState::Updating, since, settings.creation_timeout))
            }
            MachinePhase::Terminating => {
                Some((SiblingState::Terminating, since, settings.creation_timeout))
            }
            MachinePhase::New
            | MachinePhase::Pending
            | MachinePhase::CrashLoopBackOff
            | MachinePhase::Other(_) => {
                let begun = status.and_then(|status| status.creation_started_at.as_ref());
                let state = if lacks_capacity(machine) {
                    SiblingState::LacksCapacity
                } else {
                    SiblingState::Creating
                };
                let patience = machine.creation_timeout(settings.creation_timeout);
                Some((state, begun.map(|time| time.0), patience))
            }
        }
    }
}

fn lacks_capacity(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    let waits = status.and_then(|status| status.waiting_for.as_ref()).map(|wait| &wait.reason);
    let retries = status.and_then(|status| status.retry.as_ref()).map(|retry| &retry.reason);
    [waits, retries].contains(&Some(&WaitReason::CapacityExhausted))
}

/// Why a Machine that is due may not fail yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// For people: which sibling, and what is with it.
    pub message: String,
    /// When that is over at the latest.
    pub until: Timestamp,
}

/// Whether a Machine whose health timeout ended at `due` has to wait for a sibling; `None`: it may
/// fail now.
///
/// A sibling in flight holds the budget for as long as it may take to become a Node (`patience`).
/// If one after the other does, the wait still ends: `patience` after the Machine was due, or after
/// the last failure of a member. Siblings that are stuck hold nothing, but while there are any, no
/// two failures follow each other faster than that either: otherwise every unhealthy Node would be
/// taken away while none can be made.
pub fn held(
    siblings: &Siblings,
    due: Timestamp,
    now: Timestamp,
    patience: Duration,
) -> Option<Held> {
    let pace = siblings.last_failure.map_or(Timestamp::MIN, |at| after(at, patience));
    let all = || siblings.in_flight.iter();
    let holders = all().filter(|sibling| sibling.holds_until > now);
    let (sibling, bound) = match holders.max_by_key(|sibling| sibling.holds_until) {
        Some(holder) => (holder, after(due, patience).max(pace)),
        None => (all().next()?, pace),
    };
    if now >= bound {
        return None;
    }
    let message = format!("machine {} {}", sibling.name, sibling.state.words());
    let until = if sibling.holds_until > now { bound.min(sibling.holds_until) } else { bound };
    Some(Held { message, until })
}
