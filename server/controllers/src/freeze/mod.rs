//! The controller of the overshoot freeze. [`ostler_lifecycle::freeze`] makes the decisions.

mod triggers;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::names::label;
use ostler_api::{MachineDeployment, MachineSet};
use ostler_lifecycle::freeze::{FreezeFacts, counts, plan};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::write::{Object, Plan};
use parking_lot::Mutex;

use crate::fleet::Tools;
use crate::hand::{Applied, Hand};
use crate::kind::{Kind, PassError, Passed};
use crate::stores::{DeploymentIndex, MachineIndex, SetIndex};
use crate::watch::ObjectName;

/// Freezes MachineSets with far too many Machines, and shows the freeze on their
/// MachineDeployments.
pub(crate) struct Freezes {
    pub(crate) tools: Tools,
    /// When users lifted freezes, of sets that exist.
    pub(crate) lifted: Mutex<HashMap<ObjectName, Timestamp>>,
}

/// The object of a pass.
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

/// The author of the freeze of a MachineSet.
pub(crate) const OF_SET: &str = "Freeze of a MachineSet";
/// The author of the freezes shown on a MachineDeployment.
pub(crate) const OF_DEPLOYMENT: &str = "Freeze of a MachineDeployment";

impl Kind for Freezes {
    const NAME: &'static str = "Freeze";
    type Key = FreezeKey;
    type Snapshot = FreezeFacts;
    type Plan = Plan<()>;
    type Done = Applied;

    async fn observe(&self, key: &FreezeKey) -> Result<Option<FreezeFacts>, PassError> {
        let now = self.tools.now();
        Ok(match key {
            FreezeKey::Set(name) => self.set(name, now),
            FreezeKey::Deployment(name) => self.deployment(name, now),
        })
    }

    fn plan(observed: &FreezeFacts) -> Plan<()> {
        plan(observed)
    }

    fn describe(plan: &Plan<()>) -> String {
        plan.describe()
    }

    async fn execute(&self, observed: &FreezeFacts, plan: &Plan<()>) -> Result<Applied, PassError> {
        if let FreezeFacts::Set { set, now, .. } = observed
            && observed.is_lifted()
        {
            self.lifted.lock().insert(ObjectName::of(set.as_ref()), *now);
        }
        self.hand(observed).apply(&plan.writes, &()).await
    }

    async fn record(
        &self,
        observed: FreezeFacts,
        plan: Plan<()>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        self.hand(&observed).record(&plan, done).await
    }
}

impl Freezes {
    fn hand(&self, observed: &FreezeFacts) -> Hand<'_> {
        let own = observed.object();
        let by = if matches!(own, Object::Set(_)) { OF_SET } else { OF_DEPLOYMENT };
        self.tools.hand(by, own)
    }

    /// Whether a set is to be frozen that is not yet.
    pub(crate) fn is_due(&self, name: &ObjectName) -> bool {
        self.set(name, self.tools.now()).is_some_and(|observed| observed.is_due())
    }

    fn set(&self, name: &ObjectName, now: Timestamp) -> Option<FreezeFacts> {
        let Some(set) = self.tools.stores.sets.get(name) else {
            self.lifted.lock().remove(name);
            return None;
        };
        let period = self.tools.settings.fleet.overshooting_period;
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
        let machines = self.tools.stores.machines.find(MachineIndex::Controller, set.uid());
        let machines = machines.iter().filter(|machine| counts(machine, &set)).count();
        Some(FreezeFacts::Set {
            owner: self.owner(&set),
            machines: i32::try_from(machines).unwrap_or(i32::MAX),
            lifted,
            now,
            margins: self.tools.settings.fleet.margins,
            period,
            set,
        })
    }

    fn owner(&self, set: &MachineSet) -> Option<Arc<MachineDeployment>> {
        let uid = &controller(&set.metadata)?.uid;
        self.tools.stores.deployments.find(DeploymentIndex::Uid, uid).into_iter().next()
    }

    fn deployment(&self, name: &ObjectName, now: Timestamp) -> Option<FreezeFacts> {
        let deployment = self.tools.stores.deployments.get(name)?;
        let sets = self.tools.stores.sets.find(SetIndex::Controller, deployment.uid());
        let any_frozen = sets.iter().any(|set| set.label(label::FREEZE) == Some("True"));
        Some(FreezeFacts::Deployment { deployment, any_frozen, now })
    }
}
