//! What became of the pool of a Machine that is being deleted.

use std::collections::HashMap;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::names::MACHINE_POOL;
use ostler_api::{Machine, MachineClass, MachinePool};
use ostler_lifecycle::operation::{Request, Target};
use ostler_lifecycle::pool::awaits_its_end;
use ostler_lifecycle::set::controller;
use ostler_lifecycle::snapshot::{ClassFacts, DriverView, OwnPool};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Machines, PassError, namespace_of};
use crate::pool::is_absent;
use crate::stores::PoolIndex;

/// A group that was made just now may not be found yet.
const SETTLED: Duration = Duration::from_mins(1);
/// For so long the Machines of a pool share an answer: each asks again after a minute. This bounds the map.
const SHARED: Duration = Duration::from_secs(30);

/// What the driver last said of the group of a pool that is gone, by the UID of the pool.
#[derive(Debug, Default)]
pub(crate) struct LeftGroups(Mutex<HashMap<String, (Instant, OwnPool)>>);

impl LeftGroups {
    fn get(&self, uid: &str) -> Option<OwnPool> {
        let groups = self.0.lock();
        groups.get(uid).filter(|(at, _)| at.elapsed() < SHARED).map(|(_, said)| *said)
    }

    fn set(&self, uid: &str, said: OwnPool) {
        let mut groups = self.0.lock();
        groups.retain(|_, (at, _)| at.elapsed() < SHARED);
        groups.insert(uid.to_owned(), (Instant::now(), said));
    }
}

impl Machines {
    /// The API server is asked whether a pool is gone: the cache may not have a new one yet. Then the driver is asked
    /// whether its group is: one that lost its finalizer by hand leaves it.
    pub(super) async fn own_pool(
        &self,
        machine: &Machine,
        class: Option<&MachineClass>,
        driver: &DriverView,
    ) -> Result<OwnPool, PassError> {
        let Some(deleted) = &machine.metadata.deletion_timestamp else { return Ok(OwnPool::There) };
        let Some(owner) = controller(&machine.metadata).filter(|_| machine.has_pool()) else {
            return Ok(OwnPool::There);
        };
        let known = self.stores.pools.find_names(PoolIndex::Uid, &owner.uid);
        if !known.is_empty() {
            return Ok(OwnPool::There);
        }
        let api = self.writer.api::<MachinePool>(namespace_of(machine));
        let live = self.writer.get(&api, &owner.name).await;
        let live =
            live.map_err(|source| PassError::Api { what: "cannot read its pool", source })?;
        if live.is_some_and(|pool| pool.uid() == owner.uid) {
            return Ok(OwnPool::There);
        }
        let since = (self.clock.0)().duration_since(deleted.0);
        let may_ask = awaits_its_end(machine) && since.unsigned_abs() >= SETTLED;
        let (true, Some(class), DriverView::Ready(driver)) = (may_ask, class, driver) else {
            return Ok(OwnPool::Gone);
        };
        if !driver.has(OperationKind::GetPoolStatus) {
            return Ok(OwnPool::Gone);
        }
        if let Some(said) = self.state.left_groups.get(&owner.uid) {
            return Ok(said);
        }
        let target = Target {
            kind: MACHINE_POOL.to_owned(),
            namespace: namespace_of(machine).to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.as_str().into(),
        };
        let request =
            Request::PoolStatus { provider_id: String::new().into(), with_instances: false };
        let id = uuid::Uuid::new_v4().to_string().into();
        let time = OperationKind::GetPoolStatus.usual_time();
        let asked = ClassFacts::of(class).dispatch(id, target, request, time);
        let said = match self.sessions.call(asked).await {
            Err(failure) if is_absent(&failure) => OwnPool::GoneWithGroup,
            Ok(_) | Err(_) => OwnPool::Gone,
        };
        self.state.left_groups.set(&owner.uid, said);
        Ok(said)
    }
}
