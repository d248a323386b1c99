//! What is known of each group. Safe to lose: a new leader reads them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{MachinePool, OperationId, ProviderId};
use ostler_lifecycle::operation::{Finished, Success};
use ostler_lifecycle::pool::{Done, GroupView};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::watch::ObjectName;

/// By name of the pool. Bounded by the pools that exist: one that is gone is forgotten, also if a user removed its finalizer.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<ObjectName, Group>>);

/// What is known of one group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// UID of the pool: nothing is known of the group of one that has its name now.
    uid: String,
    /// The last read.
    pub(super) view: GroupView,
    /// When it ended; `None`: none since the last operation.
    pub(super) at: Option<Instant>,
    /// By UID of the Machine: how many reads in a row did not name its instance.
    pub(super) absent: BTreeMap<String, u32>,
    /// How often in a row the driver said that there is no group.
    pub(super) nothing: u32,
    /// How soon it is read again.
    pub(super) every: Option<Duration>,
    /// Whether the Machines of the pool were listed once by this process, and not only taken from its cache.
    pub(super) listed: bool,
    /// Whether the API server refused the last Machine that was created for an instance.
    pub(super) refused_machines: bool,
    /// UIDs of Machines that were deleted, which the cache shows alive, and when that was.
    pub(super) deleted: BTreeMap<String, Instant>,
    /// Ids of instances that were given a Machine, which the cache does not show, and when that was.
    pub(super) created: BTreeMap<ProviderId, Instant>,
    /// What the driver said last that it had done.
    pub(super) done: Option<Done>,
    /// The operation that was counted last in there.
    counted: Option<OperationId>,
}

impl Groups {
    /// Reads or changes what is known. A read of a large group is not copied for it.
    pub(super) fn with<T>(&self, pool: &MachinePool, change: impl FnOnce(&mut Group) -> T) -> T {
        let mut groups = self.0.lock();
        let group = groups.entry(ObjectName::of(pool)).or_default();
        if group.uid != pool.uid() {
            *group = Group { uid: pool.uid().to_owned(), ..Group::default() };
        }
        change(group)
    }

    /// Nothing is decided from what was read before this.
    pub(super) fn reread(&self, pool: &MachinePool) {
        self.with(pool, |group| {
            group.at = None;
            group.view = GroupView::Unknown;
        });
    }

    /// It may not be what the last read showed: the next pass reads it.
    pub(crate) fn doubt(&self, pool: &MachinePool) {
        self.with(pool, |group| group.at = None);
    }

    /// Nothing is known any more.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    pub(super) fn forget(&self, name: &ObjectName) {
        self.0.lock().remove(name);
    }
}

impl Group {
    /// The driver says that it has done it.
    pub(super) fn succeeded(&mut self, finished: &Finished, success: &Success, now: Timestamp) {
        if let Success::PoolMachineUpdated(told) = success
            && !self.view.learn(told.clone())
        {
            self.at = None;
        }
        if self.counted.as_ref() == Some(&finished.id) {
            return;
        }
        self.counted = Some(finished.id.clone());
        let same = self.done.take().filter(|it| it.key == finished.idempotency_key);
        let times = same.map_or(1, |it| it.times.saturating_add(1));
        self.done = Some(Done { key: finished.idempotency_key.clone(), times, at: now });
    }

    /// How much longer the last read is good enough; `None`: not any more.
    pub(super) fn fresh_for(&self, every: Duration) -> Option<Duration> {
        let left = every.saturating_sub(self.at?.elapsed());
        (!left.is_zero()).then_some(left)
    }
}
