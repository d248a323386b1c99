//! What became of the pool of a Machine that is being deleted.

use std::collections::HashMap;
use std::time::Duration;

use jiff::SignedDuration;
use ostler_api::driver::OperationKind;
use ostler_api::names::MACHINE_POOL;
use ostler_api::{Machine, MachineClass, MachinePool};
use ostler_lifecycle::operation::{Request, Target};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::pool::{awaits_its_end, is_absent};
use ostler_lifecycle::snapshot::{ClassFacts, DriverView, OwnPool};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{Machines, PassError, namespace_of};
use crate::stores::PoolIndex;
use crate::watch::ObjectName;

/// A group that was made just now may not be found yet.
const SETTLED: SignedDuration = SignedDuration::from_mins(1);
/// For so long the Machines of a pool share an answer: each asks again after a minute.
const SHARED: Duration = Duration::from_secs(30);
/// How long an answer may take. A driver that does not answer must not hold up the Machines of others.
const PATIENCE: Duration = Duration::from_secs(15);
/// When what is known is forgotten: no Machine of the pool asks any more.
const KEPT: Duration = Duration::from_mins(5);
/// How often in a row the driver must find no group.
const LOOKS: u32 = 2;

/// The UID of a pool, and the class whose driver, spec and secret find its group: Machines may name different ones.
type OfClass = (String, ObjectName);

/// What drivers said of the groups of pools that are gone.
#[derive(Debug, Default)]
pub(crate) struct LeftGroups(Mutex<HashMap<OfClass, LeftGroup>>);

#[derive(Debug)]
struct LeftGroup {
    /// When a Machine asked last.
    asked: Instant,
    /// How often in a row there was none. Looks are as far apart as answers are shared.
    nothing: u32,
}

impl LeftGroup {
    const fn said(&self) -> OwnPool {
        if self.nothing < LOOKS { OwnPool::Gone } else { OwnPool::GoneWithGroup }
    }
}

impl LeftGroups {
    /// What is known, also while another Machine asks; `None`: the one that gets this asks.
    fn known(&self, of: &OfClass) -> Option<OwnPool> {
        let mut groups = self.0.lock();
        groups.retain(|_, group| group.asked.elapsed() < KEPT);
        let now = Instant::now();
        match groups.get_mut(of) {
            Some(group) if group.asked.elapsed() < SHARED => return Some(group.said()),
            Some(group) => group.asked = now,
            None => drop(groups.insert(of.clone(), LeftGroup { asked: now, nothing: 0 })),
        }
        None
    }

    /// Whether there is a group, if that could be found out; returns what is known now.
    fn learn(&self, of: &OfClass, is_there: Option<bool>) -> OwnPool {
        let mut groups = self.0.lock();
        let Some(group) = groups.get_mut(of) else { return OwnPool::Gone };
        group.nothing = match is_there {
            Some(true) => 0,
            Some(false) => group.nothing.saturating_add(1),
            None => group.nothing,
        };
        group.said()
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
        if let Some(pool) = self.stores.pools.find(PoolIndex::Uid, &owner.uid).first() {
            return Ok(OwnPool::of(pool));
        }
        let api = self.writer.api::<MachinePool>(namespace_of(machine));
        let live = self.writer.get(&api, &owner.name).await;
        let live =
            live.map_err(|source| PassError::Api { what: "cannot read its pool", source })?;
        if let Some(pool) = live.filter(|pool| pool.uid() == owner.uid) {
            return Ok(OwnPool::of(&pool));
        }
        let since = (self.clock.0)().duration_since(deleted.0);
        let may_ask = awaits_its_end(machine) && since >= SETTLED;
        let (true, Some(class), DriverView::Ready(driver)) = (may_ask, class, driver) else {
            return Ok(OwnPool::Gone);
        };
        if !driver.has(OperationKind::GetPoolStatus) {
            return Ok(OwnPool::Gone);
        }
        let of = (owner.uid.clone(), ObjectName::of(class));
        if let Some(known) = self.state.left_groups.known(&of) {
            return Ok(known);
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
        let asked = ClassFacts::of(class).dispatch(id, target, request, PATIENCE);
        let is_there = match timeout(PATIENCE, self.sessions.call(asked)).await {
            Ok(Ok(_)) => Some(true),
            Ok(Err(failure)) if is_absent(&failure) => Some(false),
            Ok(Err(_)) | Err(_) => None,
        };
        Ok(self.state.left_groups.learn(&of, is_there))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn of(class: &str) -> OfClass {
        ("pool".to_owned(), ObjectName::new("default", class))
    }

    #[tokio::test(start_paused = true)]
    async fn one_machine_asks_for_all_of_its_pool_and_class_and_the_others_do_not_wait() {
        let groups = LeftGroups::default();
        assert_eq!(groups.known(&of("a")), None);
        // The driver does not answer.
        assert_eq!(groups.known(&of("a")), Some(OwnPool::Gone));
        assert_eq!(groups.known(&of("b")), None, "another class may have another driver");
        advance(SHARED).await;
        assert_eq!(groups.known(&of("a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_is_gone_after_two_looks_in_a_row_that_are_apart() {
        let groups = LeftGroups::default();
        let look = async |is_there| {
            assert_eq!(groups.known(&of("a")), None);
            let said = groups.learn(&of("a"), is_there);
            assert_eq!(groups.known(&of("a")), Some(said), "no second look immediately");
            advance(SHARED).await;
            said
        };
        assert_eq!(look(Some(false)).await, OwnPool::Gone);
        assert_eq!(look(Some(true)).await, OwnPool::Gone);
        assert_eq!(look(Some(false)).await, OwnPool::Gone);
        assert_eq!(look(None).await, OwnPool::Gone, "nothing was seen");
        assert_eq!(look(Some(false)).await, OwnPool::GoneWithGroup);
        advance(KEPT).await;
        assert_eq!(look(Some(false)).await, OwnPool::Gone, "forgotten");
    }
}
