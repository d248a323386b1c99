//! What changes mean for MachinePools.

use ostler_api::names::annotation::OPERATION;
use ostler_api::{Machine, MachinePool};
use ostler_lifecycle::pool::awaits_its_end;
use ostler_lifecycle::set::controller;

use super::fleet::expiry;
use super::{Fanout, add_gathered, priority};
use crate::queue::Priority;
use crate::stores::{MachineIndex, PoolIndex};
use crate::watch::{By, Change, ObjectName};

impl Fanout {
    /// A machine changed: reconciles the pool that controls it.
    pub(super) fn pool_of(&self, change: &Change<Machine>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same(old, new)
        {
            return;
        }
        let owner = |machine: &Machine| controller(&machine.metadata).map(|it| it.uid.clone());
        let owners = [&change.old, &change.new].into_iter().flatten();
        for uid in owners.filter_map(|machine| owner(machine)) {
            let pools = self.stores.pools.find_names(PoolIndex::Uid, &uid);
            for pool in pools.into_iter().filter(|pool| change.is_news_to(By::Pool, pool)) {
                self.add_for_one(pool, &uid, priority(change));
            }
        }
    }

    /// A pool changed: reconciles it, and its class when it was added or deleted or names another one.
    pub(crate) fn pool(&self, change: &Change<MachinePool>) {
        let priority = priority(change);
        self.needs();
        let Some(pool) = change.latest() else { return };
        let name = ObjectName::of(pool.as_ref());
        let class = |pool: &MachinePool| {
            ObjectName::new(&name.namespace, &pool.spec.template.spec.class.name)
        };
        let (old, new) = (change.old.as_deref().map(class), change.new.as_deref().map(class));
        if old != new {
            old.into_iter().chain(new).for_each(|class| self.queues.classes.add(class, priority));
        }
        if let Some(gone) = change.gone() {
            self.sessions.abandon(gone.uid());
            // Those that it left wait for it.
            for machine in self.stores.machines.find_names(MachineIndex::Controller, gone.uid()) {
                self.queues.machines.add(machine, priority);
            }
        }
        if change.is_news_to(By::Pool, &name) {
            self.queues.pools.add(name, priority);
        }
    }

    /// Something happened to the instance of a machine: if it is one of a group, that is read now.
    pub(super) fn group_changed(&self, machine: &Machine) {
        let Some(owner) = controller(&machine.metadata) else { return };
        for pool in self.stores.pools.find(PoolIndex::Uid, &owner.uid) {
            self.groups.doubt(&pool);
            self.add_for_one(ObjectName::of(pool.as_ref()), &owner.uid, Priority::Change);
        }
    }

    /// Reconciles a pool, with this UID, for one of its machines.
    fn add_for_one(&self, pool: ObjectName, uid: &str, priority: Priority) {
        let machines = self.stores.machines.count(MachineIndex::Controller, uid);
        add_gathered(&self.queues.pools, pool, machines, priority);
    }

    pub(super) fn add_pools(&self, names: Vec<ObjectName>, priority: Priority) {
        for name in names {
            self.queues.pools.add(name, priority);
        }
    }
}

/// Whether two versions of a machine are the same to a pool, and to a health check.
pub(super) fn is_same(old: &Machine, new: &Machine) -> bool {
    let (one, other) = (&old.metadata, &new.metadata);
    let annotations = |machine: &Machine| {
        let mut all = machine.metadata.annotations.clone().unwrap_or_default();
        all.remove(OPERATION);
        all
    };
    let version = |machine: &Machine| machine.status.as_ref().and_then(|it| it.version.clone());
    one.uid == other.uid
        && one.labels == other.labels
        && annotations(old) == annotations(new)
        && one.owner_references == other.owner_references
        && one.deletion_timestamp == other.deletion_timestamp
        && old.spec == new.spec
        && old.phase() == new.phase()
        && expiry(old) == expiry(new)
        && awaits_its_end(old) == awaits_its_end(new)
        && version(old) == version(new)
}
