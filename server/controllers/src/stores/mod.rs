//! The caches that decisions are made from.

mod class_source;
mod comparison;
mod concerned;
mod inherited;
mod last_known;
mod machine_change;
mod merged_secret;
mod node_change;
mod others;
mod siblings;
mod unheld;

pub use crate::indexes::{
    AttachmentIndex, BudgetIndex, CheckIndex, ClaimIndex, ClassIndex, DeploymentIndex,
    MachineIndex, NodeIndex, PodIndex, PoolIndex, ReserveIndex, SecretIndex, SetIndex, VolumeIndex,
};
pub(crate) use crate::indexes::{deployment, free_label};
pub use class_source::StoreClassSource;
pub(crate) use comparison::Drivers;
pub(crate) use inherited::Inherited;
pub(crate) use last_known::{kept_in, plain};
pub(crate) use machine_change::{is_same_to_pool, is_same_to_set};
pub(crate) use merged_secret::{MergedSecret, merge};
pub(crate) use node_change::differs;
pub(crate) use unheld::Unheld;

use std::sync::{Arc, OnceLock};

use ostler_api::Machine;
use ostler_lifecycle::class::uses_class;

use crate::target::Targets;
use crate::watch::{Cache, ObjectName};

/// All watched kinds. Cheap to clone; every clone is the same.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    /// Machines of the namespaces that are served.
    pub machines: Arc<Cache<MachineIndex>>,
    /// Classes of the namespaces that are served.
    pub classes: Arc<Cache<ClassIndex>>,
    /// Secrets of the namespaces that are served.
    pub secrets: Arc<Cache<SecretIndex>>,
    /// MachineSets of the served namespaces, if this process runs sets.
    pub sets: Arc<Cache<SetIndex>>,
    /// MachineDeployments of the served namespaces, if this process runs them.
    pub deployments: Arc<Cache<DeploymentIndex>>,
    /// MachinePools of the namespaces that are served, if this process runs machines. Without the definition there are
    /// no pools, and nothing waits for them.
    pub pools: Arc<Cache<PoolIndex>>,
    /// MachineHealthChecks, in the same way.
    pub checks: Arc<Cache<CheckIndex>>,
    /// MachineReserves, if this process runs sets, in the same way.
    pub reserves: Arc<Cache<ReserveIndex>>,
    /// The clusters that Nodes join: Nodes and pods.
    pub(crate) targets: Targets,
    /// Intents that the previous core left behind.
    pub(crate) inherited: Arc<Inherited>,
    /// Classes without a finalizer, which nothing may be created with yet.
    pub(crate) unheld: Arc<Unheld>,
    /// The source of drivers' comparisons of provider ids.
    pub(crate) drivers: Arc<OnceLock<Drivers>>,
}

impl Stores {
    /// Empty caches, filled once the controllers run.
    pub fn new(targets: Targets) -> Self {
        Self { targets, ..Self::default() }
    }

    /// Waits until every cache holds its first complete list.
    pub async fn synced(&self) {
        tokio::join!(
            self.machines.synced(),
            self.classes.synced(),
            self.secrets.synced(),
            self.targets.synced(),
        );
    }

    /// Waits until the caches of sets and deployments hold their first complete list.
    pub(crate) async fn fleet_synced(&self) {
        tokio::join!(self.sets.synced(), self.deployments.synced());
    }

    /// Machines that use a class, by name.
    pub(crate) fn users(&self, class: &ObjectName) -> Vec<ObjectName> {
        self.machines.find_names(MachineIndex::Class, &class.to_string())
    }

    /// Whether any of the counted machines uses a class.
    pub(crate) fn is_used(&self, class: &ObjectName, counts: impl Fn(&Machine) -> bool) -> bool {
        self.machines.any(MachineIndex::Class, &class.to_string(), |machine| {
            uses_class(machine, &class.namespace, &class.name) && counts(machine)
        })
    }

    /// Pools that use a class, by name.
    pub(crate) fn pools_of(&self, class: &ObjectName) -> Vec<ObjectName> {
        self.pools.find_names(PoolIndex::Class, &class.to_string())
    }

    /// How many machines use a class.
    pub(crate) fn count_users(&self, class: &ObjectName) -> usize {
        self.machines.count(MachineIndex::Class, &class.to_string())
    }

    /// Classes that name a secret.
    pub(crate) fn namers(&self, secret: &ObjectName) -> Vec<ObjectName> {
        self.classes.find_names(ClassIndex::Secret, &secret.to_string())
    }
}
