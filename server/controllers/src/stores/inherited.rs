//! The last records of the previous core. A lagging cache may lack them when the first driver connects, and the
//! operations of a driver are compared with them.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;
use ostler_api::{Machine, MachinePool};

use super::{MachineIndex, PoolIndex, Stores};
use crate::watch::ResourceVersion;

/// Machines and pools with an intent, by UID, as the API had them when this core began to lead. There are as many as
/// operations in flight, so few compared with all.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    machines: RwLock<HashMap<String, Arc<Machine>>>,
    pools: RwLock<HashMap<String, Arc<MachinePool>>>,
}

impl Inherited {
    /// Keeps the Machines that have an intent.
    pub(crate) fn keep(&self, machines: impl IntoIterator<Item = Machine>) {
        let intending = machines.into_iter().filter(|machine| machine.intent().is_some());
        let mut kept = self.machines.write();
        kept.extend(intending.map(|machine| (machine.uid().to_owned(), Arc::new(machine))));
    }

    /// Keeps the pools that have an intent.
    pub(crate) fn keep_pools(&self, pools: impl IntoIterator<Item = MachinePool>) {
        let intends =
            |pool: &MachinePool| pool.status.as_ref().is_some_and(|it| it.operation.is_some());
        let intending = pools.into_iter().filter(intends);
        let mut kept = self.pools.write();
        kept.extend(intending.map(|pool| (pool.uid().to_owned(), Arc::new(pool))));
    }
}

impl Stores {
    /// The newest known version of the Machine with this UID.
    pub(crate) fn machine_with_intent(&self, uid: &str) -> Option<Arc<Machine>> {
        let inherited = self.inherited.machines.read().get(uid).cloned();
        newest(&self.machines.find(MachineIndex::Uid, uid), inherited)
    }

    /// The newest known version of the pool with this UID.
    pub(crate) fn pool_with_intent(&self, uid: &str) -> Option<Arc<MachinePool>> {
        let inherited = self.inherited.pools.read().get(uid).cloned();
        newest(&self.pools.find(PoolIndex::Uid, uid), inherited)
    }
}

fn newest<K: Resource>(cached: &[Arc<K>], inherited: Option<Arc<K>>) -> Option<Arc<K>> {
    let [cached] = cached else { return inherited.filter(|_| cached.is_empty()) };
    let revision = |of: &K| ResourceVersion::of(of.meta().resource_version.as_deref());
    let newer = |kept: &Arc<K>| revision(cached).is_older_than(revision(kept));
    inherited.filter(newer).or_else(|| Some(Arc::clone(cached)))
}
