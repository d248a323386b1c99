//! Wakes pools.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::{Machine, MachineClass, MachinePool, ProviderName, Uid};
use ostler_lifecycle::owner::controller;
use ostler_sessions::Sessions;

use super::{Groups, Pools};
use crate::fleet::{Fleet, FleetKind as _};
use crate::left_groups::{GroupKey, LeftGroups};
use crate::queue::{Priority, Queue};
use crate::stores::{MachineIndex, PoolIndex, is_same_to_pool};
use crate::triggers::{DriverChange, Triggers, Woken, add_gathered};
use crate::watch::{Change, ObjectName};

/// State shared by passes over pools and their triggers.
pub(crate) struct Shared {
    pub(crate) groups: Arc<Groups>,
    pub(crate) reads: Arc<Queue<GroupKey>>,
    pub(crate) left: LeftGroups,
    pub(crate) sessions: Sessions,
}

impl Woken<Fleet<Pools>, Shared> {
    /// Adds pools after a change that also affects the reads of their groups.
    fn wake(&self, pools: impl IntoIterator<Item = ObjectName>, priority: Priority) {
        for pool in pools {
            self.own.reads.add(GroupKey::Of(pool.clone()), priority);
            self.queue.add(pool, priority);
        }
    }
}

impl Triggers for Woken<Fleet<Pools>, Shared> {
    /// The pool of the Machine.
    fn machine(&self, change: &Change<Machine>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same_to_pool(old, new)
        {
            return;
        }
        let owner = |machine: &Machine| controller(&machine.metadata).map(|it| it.uid.clone());
        let owners = [&change.old, &change.new].into_iter().flatten();
        for uid in owners.filter_map(|machine| owner(machine)) {
            let pools = self.stores.pools.find_names(PoolIndex::Uid, &uid);
            for pool in pools.into_iter().filter(|pool| change.is_news_to(Pools::NAME, pool)) {
                let machines = self.stores.machines.count(MachineIndex::Controller, &uid);
                add_gathered(&self.queue, pool, machines, change.priority());
            }
        }
    }

    fn class(&self, change: &Change<MachineClass>) {
        let Some(class) = change.latest() else { return };
        self.wake(self.stores.pools_of(&ObjectName::of(class.as_ref())), change.priority());
    }

    /// Pools of the classes with this secret, and pools with user data from the secret.
    fn secret(&self, change: &Change<Secret>) {
        let Some(secret) = change.latest() else { return };
        let name = ObjectName::of(secret.as_ref());
        for class in self.stores.namers(&name) {
            self.wake(self.stores.pools_of(&class), change.priority());
        }
        let booting = self.stores.pools.find_names(PoolIndex::Secret, &name.to_string());
        self.wake(booting, change.priority());
    }

    fn pool(&self, change: &Change<MachinePool>) {
        if let Some(gone) = change.gone() {
            self.own.sessions.abandon(gone.uid());
            self.stores.unseen.forget(gone.uid());
            self.own.groups.forget(&ObjectName::of(gone.as_ref()));
        }
        let Some(name) = change.latest().map(|pool| ObjectName::of(pool.as_ref())) else { return };
        if change.is_news_to(Pools::NAME, &name) {
            self.wake([name], change.priority());
        }
    }

    /// A pool of the cluster may have waited for a token there.
    fn cluster(&self, cluster: &ObjectName) {
        let mut pools = self.stores.pools.names();
        pools.retain(|pool| pool.namespace == cluster.namespace);
        self.add_all(pools, Priority::Background);
    }

    fn everything(&self) {
        self.wake(self.stores.pools.names(), Priority::Background);
    }

    fn operation(&self, uid: &Uid) {
        let pools = self.stores.pools.find_names(PoolIndex::Uid, uid.as_str());
        self.add_all(pools, Priority::Change);
    }

    fn driver(&self, provider: &ProviderName, change: DriverChange) {
        for class in self.settings.served_by(provider, self.stores.classes.all()) {
            self.wake(self.stores.pools_of(&ObjectName::of(class.as_ref())), change.priority());
        }
    }

    /// If the instance is in a group, the group is read now.
    fn instance(&self, machine: &Machine) {
        let Some(owner) = controller(&machine.metadata) else { return };
        for pool in self.stores.pools.find(PoolIndex::Uid, &owner.uid) {
            self.own.groups.doubt(&pool);
            self.own.reads.add(GroupKey::Of(ObjectName::of(pool.as_ref())), Priority::Change);
        }
    }
}
