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

use ostler_api::names::MACHINE_POOL;
use ostler_api::{Machine, ProviderId};
use ostler_lifecycle::class::uses_class;
use ostler_lifecycle::owner::{controller, is_in_reserve};

use crate::target::Targets;
use crate::unseen::{Effect, Unseen};
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
    /// The writes of this process, by UID of their owner, that the caches do not show yet.
    pub(crate) unseen: Arc<Unseen>,
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

    /// Awaits in the cache what a list shows, as if this process had written it.
    pub(crate) fn await_listed(&self, machine: &Machine) {
        let Some(owner) = controller(&machine.metadata) else { return };
        let cached = self.machines.find(MachineIndex::Uid, machine.uid()).into_iter().next();
        let Some(cached) = cached else {
            let of_pool = owner.kind == MACHINE_POOL;
            let key = if of_pool {
                machine.instance_id().map(ProviderId::as_str)
            } else {
                Some(machine.name())
            };
            if let Some(key) = key {
                self.unseen.listed(&owner.uid, (Effect::Created, key));
            }
            return;
        };
        if is_in_reserve(&cached.metadata) && !is_in_reserve(&machine.metadata) {
            // The process before took it.
            self.unseen.sent(&owner.uid, None, (Effect::Changed, machine.name()));
        }
        if machine.is_deleting() && !cached.is_deleting() {
            self.unseen.listed(&owner.uid, (Effect::Deleted, machine.uid()));
        }
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
