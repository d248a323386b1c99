//! The state of the pool of a Machine in deletion.

use ostler_api::{Machine, MachinePool};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::snapshot::OwnPool;

use super::{Machines, PassError};
use crate::left_groups::LeftGroup;
use crate::stores::PoolIndex;
use crate::watch::ObjectName;

/// The group of the pool of a Machine, if that is gone.
pub(super) fn left_group(machine: &Machine) -> Option<LeftGroup> {
    let owner = controller(&machine.metadata).filter(|_| machine.has_pool())?;
    let name = |name: &str| ObjectName::new(machine.namespace(), name);
    let (pool, class) = (name(&owner.name), name(&machine.spec.class.name));
    Some(LeftGroup { pool, uid: owner.uid.clone(), class })
}

impl Machines {
    /// The API server is asked whether a pool is gone: the cache may not have a new one yet. Only a read of the group
    /// shows whether the group is gone: a pool that lost its finalizer by hand leaves its group behind.
    pub(super) async fn own_pool(&self, machine: &Machine) -> Result<OwnPool, PassError> {
        let Some(left) = left_group(machine).filter(|_| machine.is_deleting()) else {
            return Ok(OwnPool::There);
        };
        if let Some(pool) = self.stores.pools.find(PoolIndex::Uid, &left.uid).first() {
            return Ok(OwnPool::of(pool));
        }
        let api = self.writer.api::<MachinePool>(machine.namespace());
        let live = self.writer.get(&api, &left.pool.name).await;
        let live =
            live.map_err(|source| PassError::Api { what: "cannot read its pool", source })?;
        let live = live.filter(|pool| pool.uid() == left.uid);
        Ok(live.map_or_else(|| OwnPool::Gone(self.left.missed(&left)), |pool| OwnPool::of(&pool)))
    }
}
