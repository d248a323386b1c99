//! The snapshot of a pass over a MachineDeployment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::machine::MachinePhase;
use ostler_api::names::annotation;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachineSet};

use super::counts::Counts;
use crate::set::{Policy, Rank};

/// The input of a plan.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The deployment.
    pub deployment: Arc<MachineDeployment>,
    /// The class of the template; `None`: the class does not exist.
    pub class: Option<Arc<MachineClass>>,
    /// Sets that the deployment controls.
    pub sets: Vec<SetView>,
    /// Sets without a controller that match the selector.
    pub orphans: Vec<Arc<MachineSet>>,
    /// The deployments of its namespace.
    pub others: Vec<Arc<MachineDeployment>>,
    /// Whether autoscalers are kept from Nodes during rollouts.
    pub guard_nodes: bool,
    /// A set in the namespace that cannot be read, described for people.
    pub unreadable: Option<String>,
    /// When to look again although nothing changed.
    pub again: Duration,
    /// The time.
    pub now: Timestamp,
}

/// A set and its Machines.
#[derive(Debug, Clone)]
pub struct SetView {
    /// The set.
    pub set: Arc<MachineSet>,
    /// The class of the template; `None`: the class does not exist.
    pub class: Option<Arc<MachineClass>>,
    /// The Machines that the set controls.
    pub machines: Vec<MachineView>,
}

/// A Machine and its Node.
#[derive(Debug, Clone)]
pub struct MachineView {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// The Machine's Node, if known.
    pub node: Option<Arc<Node>>,
}

impl MachineView {
    /// Whether it is failed and kept for examination.
    pub fn is_preserved(&self, now: Timestamp) -> bool {
        let status = self.machine.status.as_ref();
        let current = status.and_then(|status| status.current_status.as_ref());
        let until = current.and_then(|current| current.preserve_expiry_time.as_ref());
        self.machine.phase() == MachinePhase::Failed && until.is_some_and(|until| until.0 > now)
    }

    /// Whether the Machine side is at an update in place, or gave up.
    pub(super) fn is_in_update(&self) -> bool {
        use MachinePhase::{InPlaceUpdateFailed, InPlaceUpdateSuccessful, InPlaceUpdating};
        let phase = self.machine.phase();
        matches!(phase, InPlaceUpdating | InPlaceUpdateSuccessful | InPlaceUpdateFailed)
    }

    /// Whether pods can run on it.
    pub fn is_available(&self) -> bool {
        let phase = self.machine.phase();
        let runs = matches!(phase, MachinePhase::Running | MachinePhase::Available);
        runs && !self.machine.is_deleting()
    }
}

impl SetView {
    /// The set in numbers. Machines in `marked` are about to be deleted: they are not available any more.
    pub fn counts(&self, marked: &BTreeSet<String>, now: Timestamp) -> Counts {
        let living = || self.machines.iter().filter(|one| !one.machine.is_deleting());
        let is_marked = |one: &&MachineView| marked.contains(one.machine.name());
        Counts {
            wanted: self.set.spec.replicas(),
            machines: number(self.machines.len()),
            living: number(living().count()),
            available: number(living().filter(|one| one.is_available() && !is_marked(one)).count()),
            kept: number(self.kept(marked, now).len()),
            updating: 0,
            marked: number(living().filter(is_marked).count()),
            desired_mark: mark(&self.set, annotation::DESIRED_REPLICAS),
            max_mark: mark(&self.set, annotation::MAX_REPLICAS),
        }
    }

    /// Names of unavailable Machines that the set deletes after an available one, for whatever reason: they are
    /// preserved, or the available one has a lower priority. Machines that are updated in place are counted separately.
    pub(super) fn kept(&self, marked: &BTreeSet<String>, now: Timestamp) -> BTreeSet<&str> {
        let stays = |one: &&MachineView| {
            !one.machine.is_deleting()
                && !marked.contains(one.machine.name())
                && !one.is_in_update()
        };
        let (available, others): (Vec<_>, Vec<_>) =
            self.machines.iter().filter(stays).partition(|one| one.is_available());
        if others.is_empty() {
            return BTreeSet::new();
        }
        let policy = Policy::of(&self.set);
        let rank = |one: &MachineView| Rank::of(&one.machine, policy, now);
        let first = available.into_iter().map(rank).min();
        let is_kept = |one: &&MachineView| {
            first.as_ref().map_or_else(|| one.is_preserved(now), |first| rank(one) > *first)
        };
        others.into_iter().filter(is_kept).map(|one| one.machine.name()).collect()
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn mark(set: &MachineSet, key: &str) -> Option<i32> {
    set.annotation(key)?.parse().ok()
}
