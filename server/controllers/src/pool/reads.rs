//! Reads of groups: a kind of its own, since a driver may take minutes for one. A read wakes the pool, or the Machines
//! left by a pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::driver::OperationKind;
use ostler_api::{Machine, MachinePool, OperationId, ProviderName};
use ostler_lifecycle::class::unresolved_of_pool;
use ostler_lifecycle::operation::{Dispatch, Outcome as Answer};
use ostler_lifecycle::pool::{CALM, Read, expected, is_absent, look, read};
use ostler_lifecycle::snapshot::{ClassFacts, DriverView};
use parking_lot::Mutex;
use tracing::debug;

use super::Pools;
use super::groups::{Group, ReadWith};
use super::observe::class_name;
use crate::fleet::Tools;
use crate::hot_update::driver_of;
use crate::kind::{Kind, PassError, Passed};
use crate::left_groups::{GroupKey, LeftGroup, LeftGroups};
use crate::queue::{Outcome, Priority, Queue};
use crate::stores::MachineIndex;
use crate::watch::ObjectName;

/// Most concurrent reads of groups of a provider.
const MOST: usize = 8;
/// When a read is tried again while as many run as may.
const READ_AGAIN: Duration = Duration::from_secs(2);

/// Reads groups.
pub(crate) struct GroupReads {
    pub(crate) pools: Arc<Pools>,
    pub(crate) left: LeftGroups,
    /// Where pools and Machines are woken.
    pub(crate) woken: (Arc<Queue<ObjectName>>, Arc<Queue<ObjectName>>),
    pub(crate) running: Running,
}

/// A read that is due.
pub(crate) struct Due {
    of: Of,
    class: ClassFacts,
    id: OperationId,
    began: Timestamp,
}

enum Of {
    /// The pool and its Machines before the read; the revisions for the read, and the epoch.
    Pool(Arc<MachinePool>, Vec<Arc<Machine>>, ReadWith, u64),
    Left(LeftGroup),
}

impl Kind for GroupReads {
    const NAME: &'static str = "Group";
    type Key = GroupKey;
    type Snapshot = Due;
    type Plan = Dispatch;
    type Done = Answer;

    async fn observe(&self, key: &GroupKey) -> Result<Option<Due>, PassError> {
        let due = match key {
            GroupKey::Of(pool) => self.of_pool(pool).await?,
            GroupKey::Left(group) => self.of_left(group),
        };
        let id = uuid::Uuid::new_v4().to_string().into();
        let began = self.pools.tools.now();
        Ok(due.map(|(of, class)| Due { of, class, id, began }))
    }

    fn plan(Due { of, class, id, .. }: &Due) -> Dispatch {
        match of {
            Of::Pool(pool, ..) => read(pool, class, id.clone()),
            Of::Left(LeftGroup { pool, uid, .. }) => {
                look((&pool.namespace, &pool.name, uid), class, id.clone())
            }
        }
    }

    fn describe(plan: &Dispatch) -> String {
        plan.kind().to_string()
    }

    async fn execute(&self, due: &Due, plan: &Dispatch) -> Result<Answer, PassError> {
        let running = self.running.begin(&due.class.provider);
        let Some(_running) = running else { return Err(PassError::NotYet(READ_AGAIN)) };
        if let Of::Pool(pool, ..) = &due.of {
            self.pools.groups.with(pool, Group::begin);
        }
        Ok(self.pools.tools.sessions.call(plan.clone()).await)
    }

    async fn record(&self, due: Due, _: Dispatch, answer: Answer) -> Result<Passed, PassError> {
        Ok(self.learn(due, answer))
    }
}

impl GroupReads {
    fn learn(&self, due: Due, answer: Answer) -> Passed {
        let (pools, stores) = (&self.pools, &self.pools.tools.stores);
        match due.of {
            Of::Pool(pool, machines, with, epoch) => {
                let read = Read::of(answer, due.began);
                let name = ObjectName::of(pool.as_ref());
                let now = stores.pools.get(&name).filter(|now| now.uid() == pool.uid());
                let Some(now) = now else { return Passed::Settled(Outcome::Done) };
                if let Read::Failed(failure) = &read {
                    debug!(pool = pool.name(), code = %failure.code, "the group cannot be read");
                }
                // An update may have begun meanwhile.
                let machines = expected([&pool, &now], &machines);
                let room = pools.tools.settings.lifecycle.resource_exhausted_retry;
                let taken = |group: &mut Group| group.ended(read, &machines, (epoch, &with, room));
                if !pools.groups.with(&pool, taken) {
                    return Passed::Changed;
                }
                self.woken.0.add(name, Priority::Change);
                let next = pools.groups.look(&pool, |group| group.fresh_for(&with));
                Passed::Settled(Outcome::Again(next))
            }
            Of::Left(group) => {
                let is_there = match answer {
                    Ok(_) => Some(true),
                    Err(failure) => is_absent(&failure).then_some(false),
                };
                self.left.learn(&group, is_there);
                for machine in stores.machines.find_names(MachineIndex::Controller, &group.uid) {
                    self.woken.1.add(machine, Priority::Change);
                }
                Passed::Settled(Outcome::Done)
            }
        }
    }

    /// The group of a pool, unless it was read just now, or cannot be.
    async fn of_pool(&self, name: &ObjectName) -> Result<Option<(Of, ClassFacts)>, PassError> {
        let (stores, groups) = (&self.pools.tools.stores, &self.pools.groups);
        let Some(pool) = stores.pools.get(name) else { return Ok(None) };
        let pool = self.pools.first_live(pool).await?;
        let around = self.pools.around(&pool);
        let Some(class) = around.facts.as_ref().filter(|_| around.shows_group()) else {
            return Err(PassError::NotYet(CALM));
        };
        let before = unresolved_of_pool(&pool);
        let before = before.and_then(|it| stores.class_before(&class_name(&pool), &it));
        let class = before.as_ref().map_or_else(|| class.clone(), ClassFacts::of);
        let with = (class.revision.clone(), around.secret.revision().cloned());
        let (left, epoch) = groups.look(&pool, |group| (group.fresh_for(&with), group.epoch()));
        if !left.is_zero() {
            return Err(PassError::NotYet(left));
        }
        let machines = stores.machines.find(MachineIndex::Controller, pool.uid());
        Ok(Some((Of::Pool(pool, machines, with, epoch), class)))
    }

    /// The group that a pool left, unless it was looked for just now, or cannot be.
    fn of_left(&self, group: &LeftGroup) -> Option<(Of, ClassFacts)> {
        let Tools { stores, sessions, settings, .. } = &self.pools.tools;
        let class = stores.class_or_last_known(&group.class)?;
        let driver = driver_of(sessions, settings, class.provider());
        let can = matches!(driver, DriverView::Ready(it) if it.has(OperationKind::GetPoolStatus));
        let due = can && !self.left.is_known(group);
        due.then(|| (Of::Left(group.clone()), ClassFacts::of(&class)))
    }
}

/// The reads that run, by provider. Bounded by the workers.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<HashMap<ProviderName, usize>>);

/// A running read, until dropped.
#[derive(Debug)]
struct One<'a> {
    running: &'a Running,
    provider: ProviderName,
}

impl Running {
    /// `None`: as many run as may.
    fn begin(&self, provider: &ProviderName) -> Option<One<'_>> {
        let mut all = self.0.lock();
        let running = all.entry(provider.clone()).or_default();
        if *running >= MOST {
            return None;
        }
        *running += 1;
        Some(One { running: self, provider: provider.clone() })
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        let mut all = self.running.0.lock();
        let left = all.get(&self.provider).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            all.remove(&self.provider);
        } else {
            all.insert(self.provider.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_slow_leaves_workers_to_the_groups_of_others() {
        let (reads, slow, other) = (Running::default(), "slow".into(), "other".into());
        let mut running: Vec<_> = (0..MOST).map(|_| reads.begin(&slow).unwrap()).collect();
        assert!(reads.begin(&slow).is_none());
        assert!(reads.begin(&other).is_some());
        running.pop();
        assert!(reads.begin(&slow).is_some());
        running.clear();
        assert!(reads.0.lock().is_empty(), "nothing is kept of a provider of which none runs");
    }
}
