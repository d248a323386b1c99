//! The controller of the overshoot freeze. [`ostler_lifecycle::freeze`] makes the decisions.

mod execute;
mod triggers;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource as _;
use ostler_api::machine_deployment::MachineDeploymentCondition;
use ostler_api::machine_set::MachineSetCondition;
use ostler_api::names::label;
use ostler_api::{MachineDeployment, MachineSet};
use ostler_lifecycle::freeze::{self, Change, Plan, counts, plan, plan_deployment};
use ostler_lifecycle::set::controller;
use parking_lot::Mutex;

use crate::clock::DebugClock;
use crate::events::{EventRecord, Recorder, Severity};
use crate::queue::Outcome;
use crate::reconcile::{Kind, PassError, Passed};
use crate::settings::Settings;
use crate::stores::{DeploymentIndex, MachineIndex, SetIndex, Stores};
use crate::watch::ObjectName;
use crate::writes::Writer;

/// Freezes MachineSets that have far too many Machines, and shows it on their MachineDeployments.
pub(crate) struct Freezes {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    /// When users lifted freezes, of sets that exist.
    pub(crate) lifted: Mutex<HashMap<ObjectName, Timestamp>>,
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FreezeKey {
    /// A set.
    Set(ObjectName),
    /// A deployment.
    Deployment(ObjectName),
}

impl fmt::Display for FreezeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(name) => write!(f, "machineset {name}"),
            Self::Deployment(name) => write!(f, "machinedeployment {name}"),
        }
    }
}

/// What a pass reads.
pub(crate) enum Observed {
    /// A set, its deployment, and how many Machines count.
    Set {
        set: Arc<MachineSet>,
        owner: Option<Arc<MachineDeployment>>,
        machines: i32,
        lifted: Option<Timestamp>,
        now: Timestamp,
        settings: Arc<Settings>,
    },
    /// A deployment, and whether one of its sets is frozen.
    Deployment { deployment: Arc<MachineDeployment>, any_frozen: bool, now: Timestamp },
}

/// What is done.
#[derive(Debug)]
pub(crate) enum Decision {
    Set(Plan<MachineSetCondition>),
    Deployment(Plan<MachineDeploymentCondition>),
}

impl Kind for Freezes {
    const NAME: &'static str = "Freeze";
    type Key = FreezeKey;
    type Snapshot = Observed;
    type Plan = Decision;
    type Done = ();

    async fn observe(&self, key: &FreezeKey) -> Result<Option<Observed>, PassError> {
        let now = (self.clock.0)();
        Ok(match key {
            FreezeKey::Set(name) => self.set(name, now),
            FreezeKey::Deployment(name) => self.deployment(name, now),
        })
    }

    fn plan(observed: &Observed) -> Decision {
        match observed {
            Observed::Set { set, owner, machines, lifted, now, settings } => {
                Decision::Set(plan(&freeze::Snapshot {
                    set,
                    owner: owner.as_deref(),
                    machines: *machines,
                    now: *now,
                    margins: settings.fleet.margins,
                    period: settings.fleet.overshooting_period,
                    lifted: *lifted,
                }))
            }
            Observed::Deployment { deployment, any_frozen, now } => {
                Decision::Deployment(plan_deployment(deployment, *any_frozen, *now))
            }
        }
    }

    fn describe(decision: &Decision) -> String {
        match decision {
            Decision::Set(plan) => format!("label {:?}, {:?}", plan.label, plan.event),
            Decision::Deployment(plan) => format!("label {:?}", plan.label),
        }
    }

    async fn execute(&self, observed: &Observed, decision: &Decision) -> Result<(), PassError> {
        match (observed, decision) {
            (Observed::Set { set, now, .. }, Decision::Set(plan)) => {
                if plan.by_user {
                    self.lifted.lock().insert(ObjectName::of(set.as_ref()), *now);
                }
                self.write_set(set, plan).await
            }
            (Observed::Deployment { deployment, .. }, Decision::Deployment(plan)) => {
                self.write_deployment(deployment, plan).await
            }
            _ => Ok(()),
        }
    }

    async fn record(
        &self,
        observed: Observed,
        decision: Decision,
        (): (),
    ) -> Result<Passed, PassError> {
        let (Observed::Set { set, now, .. }, Decision::Set(plan)) = (observed, decision) else {
            return Ok(Passed::Settled(Outcome::Done));
        };
        if let Some(change) = plan.event {
            self.tell(&set, change);
        }
        let period = self.settings.fleet.overshooting_period;
        let sooner = plan.again.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        Ok(Passed::Settled(Outcome::Again(sooner.map_or(period, |wait| wait.min(period)))))
    }
}

impl Freezes {
    /// Whether a set is to be frozen that is not yet. Nothing of it is deleted before that: in a moment it would have too few
    /// Machines for it, and no event would say why it lost them.
    pub(crate) fn is_due(&self, name: &ObjectName) -> bool {
        let observed = self.set(name, (self.clock.0)());
        let decision = observed.as_ref().map(Self::plan);
        matches!(decision, Some(Decision::Set(Plan { label: Some(true), .. })))
    }

    fn set(&self, name: &ObjectName, now: Timestamp) -> Option<Observed> {
        let Some(set) = self.stores.sets.get(name) else {
            self.lifted.lock().remove(name);
            return None;
        };
        let period = self.settings.fleet.overshooting_period;
        let mut lifted = self.lifted.lock();
        let is_recent = |at: &Timestamp| now.duration_since(*at).unsigned_abs() < period;
        let lifted = match lifted.get(name).copied() {
            Some(at) if is_recent(&at) => Some(at),
            Some(_) => {
                lifted.remove(name);
                None
            }
            None => None,
        };
        let machines = self.stores.machines.find(MachineIndex::Controller, set.uid());
        let machines = machines.iter().filter(|machine| counts(machine, &set)).count();
        Some(Observed::Set {
            owner: self.owner(&set),
            machines: i32::try_from(machines).unwrap_or(i32::MAX),
            lifted,
            now,
            settings: Arc::clone(&self.settings),
            set,
        })
    }

    fn owner(&self, set: &MachineSet) -> Option<Arc<MachineDeployment>> {
        let uid = &controller(&set.metadata)?.uid;
        self.stores.deployments.find(DeploymentIndex::Uid, uid).into_iter().next()
    }

    fn deployment(&self, name: &ObjectName, now: Timestamp) -> Option<Observed> {
        let deployment = self.stores.deployments.get(name)?;
        let sets = self.stores.sets.find(SetIndex::Controller, deployment.uid());
        let any_frozen = sets.iter().any(|set| set.label(label::FREEZE) == Some("True"));
        Some(Observed::Deployment { deployment, any_frozen, now })
    }

    fn tell(&self, set: &MachineSet, change: Change) {
        let (reason, action) = match change {
            Change::Frozen { .. } => ("FrozeMachineSet", "Freeze"),
            Change::Unfrozen { .. } => ("UnfrozeMachineSet", "Unfreeze"),
        };
        let regarding = set.object_ref(&());
        let (severity, note) = (Severity::Normal, change.message());
        self.recorder.record(EventRecord { regarding, severity, reason, action, note });
    }
}
