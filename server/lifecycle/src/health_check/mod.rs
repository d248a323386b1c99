//! MachineHealthChecks: finds unhealthy Machines, and decides whether they may be replaced.
//!
//! A check replaces nothing itself. It puts a mark on an unhealthy Machine, and takes it away when the Machine is
//! healthy again. A marked Machine fails as one does whose health timeout ended: within the replacement budget of its
//! MachineDeployment, and not while an API server is away ([`crate::machine`]). The owning set or pool then replaces
//! the Machine like any Failed one, after a drain. So there is a single way to a replacement, and a single budget.
//!
//! Nothing is counted from the time at which a check was made, or from when this process began: a Node says since when it
//! is as it is, and time in which it could not report is added.

mod limit;
mod mark;
mod scope;
mod status;
mod valid;
mod verdict;
mod writes;

pub use mark::holds;
pub use scope::{Exempt, exempt, selects};
pub use verdict::{HealthVerdict, verdict};
pub use writes::{CheckReport, plan};

use std::sync::Arc;

use crate::{
    outage::ApiView,
    owner::controller,
    plan::Event,
    snapshot::{NodeView, TargetView},
};
use jiff::Timestamp;
use ostler_api::{
    Machine, MachineHealthCheck, ProviderIdComparison,
    machine::MachinePhase,
    machine_health_check::{MachineHealthCheckStatus, UnhealthyMark},
};

/// A Machine that a check looks at.
#[derive(Debug, Clone)]
pub struct CheckTarget {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// Its Node.
    pub node: NodeView,
    /// How the provider ids of Nodes are compared with its own.
    pub ids: ProviderIdComparison,
    /// The target cluster of the Machine.
    pub cluster: TargetView,
    /// The API servers on which the Node's health depends.
    pub api: ApiView,
}

/// The input of a pass over a check.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The time.
    pub now: Timestamp,
    /// Name of the check.
    pub name: String,
    /// The check; `None`: it is gone.
    pub check: Option<Arc<MachineHealthCheck>>,
    /// The selected Machines, by name.
    pub targets: Vec<CheckTarget>,
    /// Machines with a mark of the check that are no longer selected.
    pub left: Vec<Arc<Machine>>,
}

/// Decision about a check and its Machines.
#[derive(Debug, Default)]
pub struct Decision {
    /// Machines with a new or changed mark.
    pub mark: Vec<(Arc<Machine>, UnhealthyMark)>,
    /// Machines whose mark is removed.
    pub unmark: Vec<Arc<Machine>>,
    /// The status; `None`: there is no check to write it to.
    pub status: Option<MachineHealthCheckStatus>,
    /// The events for people.
    pub news: Vec<Event>,
    /// When to look again although nothing changed.
    pub again: Option<Timestamp>,
}

/// A Machine with its verdict.
struct Judged<'a> {
    target: &'a CheckTarget,
    verdict: HealthVerdict,
    /// The mark from this check.
    mark: Option<UnhealthyMark>,
}

impl Judged<'_> {
    /// Whether it counts as healthy. Where nothing is known now, it is what the core knew last: an outage is no news.
    fn is_healthy(&self) -> bool {
        let machine = &self.target.machine;
        let runs = matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available);
        match self.verdict {
            HealthVerdict::Healthy => !machine.is_deleting(),
            HealthVerdict::Unknown { .. } => runs && !machine.is_deleting(),
            HealthVerdict::Pending { .. } | HealthVerdict::Failed | HealthVerdict::Unhealthy(_) => {
                false
            }
        }
    }

    /// Whether it is unhealthy, is not on its way out, and is not given up.
    fn is_due(&self) -> bool {
        let machine = &self.target.machine;
        matches!(self.verdict, HealthVerdict::Unhealthy(_))
            && !scope::is_leaving(machine)
            && machine.phase() != MachinePhase::Failed
    }

    fn has_owner(&self) -> bool {
        controller(&self.target.machine.metadata).is_some()
    }
}

/// Decides about a check and its Machines.
pub fn decide(snap: &Snapshot) -> Decision {
    let mut plan = Decision::default();
    let unmarked = |machine: &&Arc<Machine>| !machine.is_deleting();
    plan.unmark.extend(snap.left.iter().filter(unmarked).cloned());
    let Some(check) = &snap.check else {
        let all = snap.targets.iter().map(|target| &target.machine);
        plan.unmark.extend(all.filter(|it| own_mark(it, &snap.name).is_some()).cloned());
        return plan;
    };
    let judged = judge(snap, check, &mut plan);
    let counts = limit::Counts {
        expected: judged.len(),
        healthy: judged.iter().filter(|it| it.is_healthy()).count(),
    };
    let broken = valid::broken(check);
    let gate = limit::gate(check, counts, !broken.is_empty());
    // Machines in an unknown state may be unhealthy as well: then nothing new begins.
    let known = |it: &&Judged<'_>| it.is_healthy() && it.verdict == HealthVerdict::Healthy;
    let certain = limit::Counts { healthy: judged.iter().filter(known).count(), ..counts };
    let begins = limit::gate(check, certain, !broken.is_empty()).is_open();
    for one in &judged {
        mark_or_not(&mut plan, one, gate.is_open(), begins);
    }
    plan.again = judged.iter().filter_map(|it| it.verdict.until()).min();
    let found = status::Found { check, judged: &judged, counts, gate, broken: &broken };
    status::fill(&mut plan, snap, &found);
    plan
}

/// The verdicts on the Machines. Exempt Machines are left out, and keep only a mark for which they failed.
fn judge<'a>(
    snap: &'a Snapshot,
    check: &MachineHealthCheck,
    plan: &mut Decision,
) -> Vec<Judged<'a>> {
    let mut judged = Vec::new();
    for target in &snap.targets {
        let machine = &target.machine;
        let mark = own_mark(machine, &snap.name);
        if exempt(machine, snap.now).is_some() {
            let stays = machine.is_deleting() || machine.phase() == MachinePhase::Failed;
            if mark.is_some() && !stays {
                plan.unmark.push(Arc::clone(machine));
            }
            continue;
        }
        judged.push(Judged { target, verdict: verdict(check, target, snap.now), mark });
    }
    judged
}

/// `open`: whether Machines are replaced now; `begins`: whether others may be marked, too.
fn mark_or_not(plan: &mut Decision, one: &Judged<'_>, open: bool, begins: bool) {
    let machine = &one.target.machine;
    if machine.is_deleting() {
        return;
    }
    match (&one.verdict, &one.mark) {
        // Later knowledge decides; until then nothing fails by the mark either.
        (HealthVerdict::Unknown { .. }, _) => {}
        (HealthVerdict::Unhealthy(found), mark) => {
            let of_another = machine.unhealthy_mark().is_some() && mark.is_none();
            let same = mark.as_ref().is_some_and(|mark| mark::says_the_same(mark, found));
            if one.is_due() && open && begins && one.has_owner() && !of_another && !same {
                plan.mark.push((Arc::clone(machine), found.clone()));
            } else if one.is_due() && mark.is_some() && !(open && one.has_owner()) {
                plan.unmark.push(Arc::clone(machine));
            }
        }
        (_, Some(_)) => plan.unmark.push(Arc::clone(machine)),
        (_, None) => {}
    }
}

/// The mark of this check on a Machine.
fn own_mark(machine: &Machine, check: &str) -> Option<UnhealthyMark> {
    machine.unhealthy_mark().filter(|mark| mark.check == check)
}
