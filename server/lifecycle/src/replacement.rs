//! The replacement budget: so many Machines of a MachineDeployment are on their way from failed health to a healthy
//! successor, one unless its annotation says otherwise, and a Machine that is stuck on that way does not block the
//! others.
//!
//! It is counted from the Machines in each pass. Rollouts, deletions by users, Machines that autoscalers chose and those
//! whose instance the infrastructure will end are on their way as well and use it up; they are not held by it themselves. A rollout, in turn, counts unhealthy Machines
//! as unavailable, and waits for those: see [`crate::deployment::rolling`].
//!
//! If half of a MachineDeployment is lost, something else is broken than its Machines. Then a single Machine is
//! replaced, and the others are held until its successor runs.
//!
//! Members of a MachineDeployment are the Machines of its MachineSets, and where the sets are not known, the Machines
//! with the same label `name`. A Machine of no MachineDeployment has no budget to wait for.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::MachineDeployment;
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::names::annotation;

use crate::{settings::Settings, time::after};

/// Members of a MachineDeployment, as far as relevant for a sibling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Siblings {
    /// `namespace/name` of the MachineDeployment; `None`: there is none, or the Machine is well.
    pub deployment: Option<String>,
    /// When a member last failed its health, as far as this core remembers.
    pub last_failure: Option<Timestamp>,
    /// The other members that are neither healthy nor waiting for this budget themselves.
    pub in_flight: Vec<Sibling>,
    /// All members in numbers.
    pub members: Members,
    /// How many may be on their way at the same time.
    pub limit: usize,
}

impl Default for Siblings {
    fn default() -> Self {
        Self {
            deployment: None,
            last_failure: None,
            in_flight: Vec::new(),
            members: Members::default(),
            limit: 1,
        }
    }
}

/// The annotation of a MachineDeployment; 1 without a number there.
pub fn limit(deployment: &MachineDeployment) -> usize {
    let said = deployment.annotation(annotation::MAX_UNHEALTHY_REPLACEMENTS);
    said.and_then(|text| text.trim().parse().ok()).unwrap_or(1)
}

/// The members of a MachineDeployment in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Members {
    /// How many there are to be; 0 if that is not known.
    pub wanted: usize,
    /// How many living members there are, without members in deletion.
    pub living: usize,
    /// How many living members are unhealthy, and not given up.
    pub unhealthy: usize,
    /// How many are being made, replaced or deleted.
    pub in_flight: usize,
}

impl Members {
    /// Counts the members.
    pub fn of<'a>(machines: impl Iterator<Item = &'a Machine>, wanted: usize) -> Self {
        let mut counts = Self { wanted, ..Self::default() };
        for machine in machines {
            counts.living += usize::from(!machine.is_deleting());
            match SiblingState::of(machine) {
                Some(SiblingState::Chosen) => {}
                Some(_) => counts.in_flight += 1,
                None if machine.phase() == MachinePhase::Unknown => counts.unhealthy += 1,
                None => {}
            }
        }
        counts
    }

    /// Whether half of the members or more are lost, and more than one. A request in flight, or a missing Machine, may
    /// be a lost member.
    pub fn is_mass_failure(&self) -> bool {
        let lost = self.unhealthy + usize::from(self.in_flight > 0 || self.missing() > 0);
        self.unhealthy > 1 && 2 * lost >= self.living.max(self.wanted)
    }

    /// How many do not exist yet.
    const fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.living)
    }
}

/// A member that is being made, replaced or updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its name.
    pub name: String,
    /// The sibling's state.
    pub state: SiblingState,
    /// Until when it holds the budget at the longest; in the past: it is stuck.
    pub holds_until: Timestamp,
}

/// The state of a sibling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiblingState {
    /// Is to become a Node.
    Creating,
    /// Is to become a Node, and quota or capacity is short. Such a sibling holds nothing.
    LacksCapacity,
    /// Is updated in place.
    Updating,
    /// Given up, and not replaced yet.
    Failed,
    /// Being deleted.
    Terminating,
    /// An autoscaler chose it for deletion.
    Chosen,
}

impl SiblingState {
    /// Reads a member; `None`: it does not matter to the budget. Healthy members do not matter, unhealthy members wait
    /// for the budget themselves, and preserved members stay for days.
    pub fn of(machine: &Machine) -> Option<Self> {
        let current = || machine.status.as_ref()?.current_status.as_ref();
        match machine.phase() {
            _ if machine.is_deleting() => Some(Self::Terminating),
            MachinePhase::Running
            | MachinePhase::Available
            | MachinePhase::InPlaceUpdateSuccessful
            | MachinePhase::InPlaceUpdateFailed => chosen_at(machine).map(|_| Self::Chosen),
            MachinePhase::Unknown => None,
            MachinePhase::Failed if current()?.preserve_expiry_time.is_some() => None,
            MachinePhase::Failed => Some(Self::Failed),
            MachinePhase::InPlaceUpdating => Some(Self::Updating),
            MachinePhase::Terminating => Some(Self::Terminating),
            MachinePhase::New
            | MachinePhase::Pending
            | MachinePhase::CrashLoopBackOff
            | MachinePhase::Other(_) => {
                let lacks = lacks_capacity(machine);
                Some(if lacks { Self::LacksCapacity } else { Self::Creating })
            }
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Creating => "is being created",
            Self::LacksCapacity => "waits for capacity",
            Self::Updating => "is being updated",
            Self::Failed => "is failed and not replaced yet",
            Self::Terminating => "is being deleted",
            Self::Chosen => "was chosen by an autoscaler and is about to be deleted",
        }
    }
}

impl Sibling {
    /// Reads a member; `None`: it does not matter to the budget.
    pub fn of(machine: &Machine, settings: &Settings) -> Option<Self> {
        let state = SiblingState::of(machine)?;
        let status = machine.status.as_ref();
        let current = || status?.current_status.as_ref()?.last_update_time.as_ref();
        let since = match state {
            SiblingState::Terminating if machine.is_deleting() => {
                machine.metadata.deletion_timestamp.as_ref().map(|time| time.0)
            }
            SiblingState::Creating | SiblingState::LacksCapacity => {
                status.and_then(|it| it.creation_started_at.as_ref()).map(|time| time.0)
            }
            SiblingState::Chosen => chosen_at(machine),
            SiblingState::Updating | SiblingState::Failed | SiblingState::Terminating => {
                current().map(|time| time.0)
            }
        };
        let born = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = since.or(born).unwrap_or(Timestamp::MIN);
        let patience = if state == SiblingState::Creating {
            machine.creation_timeout(settings.creation_timeout)
        } else {
            settings.creation_timeout
        };
        let stuck = state == SiblingState::LacksCapacity;
        let holds_until = if stuck { Timestamp::MIN } else { after(since, patience) };
        Some(Self { name: machine.name().to_owned(), state, holds_until })
    }
}

/// When an autoscaler chose it for deletion.
fn chosen_at(machine: &Machine) -> Option<Timestamp> {
    let chosen = machine.annotation(annotation::PRIORITY) == Some("1");
    let at = machine.annotation(annotation::MARKED_FOR_DELETION).filter(|_| chosen)?;
    at.parse().ok()
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
    /// Whether it is the budget, or the loss of half of the deployment.
    pub reason: WaitReason,
    /// For people: the sibling and its state.
    pub message: String,
    /// When that is over at the latest, or to be looked at again.
    pub until: Timestamp,
}

/// Whether a Machine whose health timeout ended at `due` has to wait for siblings; `None`: it may
/// fail now.
///
/// A sibling in flight uses the budget for as long as it may take to become a Node (`patience`). If one after the other
/// does, the wait still ends: `patience` after the Machine was due, or after the last failure of a member. Siblings
/// that are stuck hold nothing, but while there are any, no two failures follow each other faster than that either:
/// otherwise every unhealthy Node would be taken away while none can be made. In a mass failure the wait does not end
/// as long as a sibling is in flight, stuck or not.
pub fn held(
    siblings: &Siblings,
    due: Timestamp,
    now: Timestamp,
    patience: Duration,
) -> Option<Held> {
    let Siblings { last_failure, in_flight, members, limit, .. } = siblings;
    if *limit == 0 {
        let key = annotation::MAX_UNHEALTHY_REPLACEMENTS;
        let message = format!("annotation {key} of its deployment is 0");
        return Some(Held {
            reason: WaitReason::ReplacementBudget,
            message,
            until: after(now, patience),
        });
    }
    let (holders, stuck): (Vec<_>, Vec<_>) =
        in_flight.iter().partition(|sibling| sibling.holds_until > now);
    // An autoscaler that leaves a chosen Machine alone changed its mind.
    let stuck = || stuck.iter().copied().filter(|it| it.state != SiblingState::Chosen);
    let first = holders.iter().copied().max_by_key(|it| it.holds_until).or_else(|| stuck().next());
    let used = holders.len() + members.missing();
    let state = match first {
        Some(sibling) => format!("machine {} {}", sibling.name, sibling.state.words()),
        None if used > 0 => "a machine is to be created".to_owned(),
        None => return None,
    };
    if members.is_mass_failure() {
        let Members { unhealthy, living, .. } = members;
        let message = format!("{unhealthy} of {living} machines are unhealthy, and {state}");
        return Some(Held {
            reason: WaitReason::MassFailure,
            message,
            until: after(now, patience),
        });
    }
    let pace = last_failure.map_or(Timestamp::MIN, |at| after(at, patience));
    let bound = if used >= *limit {
        after(due, patience).max(pace)
    } else if stuck().next().is_some() {
        pace
    } else {
        return None;
    };
    if now >= bound {
        return None;
    }
    let freed = first.map(|it| it.holds_until).filter(|freed| *freed > now);
    let until = freed.map_or(bound, |freed| bound.min(freed));
    Some(Held { reason: WaitReason::ReplacementBudget, message: state, until })
}
