//! What is known of each group. Safe to lose: a new leader reads them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine_pool::PoolIntent;
use ostler_api::{Machine, MachinePool, OperationId, ProviderId, Revision};
use ostler_lifecycle::operation::{Failure, Finished, Success};
use ostler_lifecycle::pool::{Done, GroupView, Reading, awaits_its_end};
use ostler_lifecycle::retry::group_read_again;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{BUSY, CALM};
use crate::watch::ObjectName;

/// How often a group is read at most that keeps changing.
const HINTED: Duration = Duration::from_secs(2);

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
    at: Option<Instant>,
    /// Whether something happened since it began.
    hinted: bool,
    /// The reads that failed since the last one that did not.
    failed: Option<Failed>,
    /// By UID of the Machine: how many reads in a row did not name its instance.
    absent: BTreeMap<String, u32>,
    /// How often in a row the driver said that there is no group.
    nothing: u32,
    /// When a look that something is missing last counted.
    looked: Option<Instant>,
    /// How soon it is read again.
    pub(super) every: Option<Duration>,
    /// Whether the pool and the Machines of all pools were read once by this process, and not only taken from its cache.
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

/// Reads in a row that failed.
#[derive(Debug)]
struct Failed {
    times: i32,
    /// When the next one is due.
    until: Instant,
    /// What they were made with. Others are tried immediately.
    with: ReadWith,
}

/// The revisions of class and secret that a group is read with.
pub(super) type ReadWith = (Revision, Option<Revision>);

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
            // That it cannot be read is still so.
            if group.failed.is_none() {
                group.view = GroupView::Unknown;
            }
        });
    }

    /// It may not be what the last read showed: it is read soon.
    pub(crate) fn doubt(&self, pool: &MachinePool) {
        self.with(pool, |group| group.hinted = true);
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
    /// The driver says that it has done it. What it says of an instance that it deleted and that the last read did not name is
    /// as good as a read that does not: the next one may name none, from which alone nothing follows.
    pub(super) fn succeeded(
        &mut self,
        finished: &Finished,
        success: &Success,
        (intent, machines): (Option<&PoolIntent>, &[Arc<Machine>]),
        now: Timestamp,
    ) {
        if let Success::PoolMachineUpdated(told) = success
            && !self.view.learn(told.clone())
        {
            self.at = None;
        }
        if self.counted.as_ref() == Some(&finished.id) {
            return;
        }
        self.counted = Some(finished.id.clone());
        if let Success::PoolMachinesDeleted { not_deleted, .. } = success
            && let Some(intent) = intent.filter(|it| it.intent.id == finished.id)
        {
            let is_deleted = |id: &ProviderId| {
                intent.provider_ids.contains(id) && not_deleted.iter().all(|(other, _)| other != id)
            };
            // It has taken the deletion of one that is there, which goes on.
            let read = self.view.known();
            let is_there = |id: &ProviderId| {
                read.is_some_and(|it| it.instances.iter().any(|one| one.provider_id == *id))
            };
            let is_gone = |id: &ProviderId| is_deleted(id) && !is_there(id);
            for machine in machines.iter().filter(|it| it.instance_id().is_some_and(is_gone)) {
                self.absent.entry(machine.uid().to_owned()).or_insert(1);
            }
        }
        let same = self.done.take().filter(|it| it.key == finished.idempotency_key);
        let times = same.map_or(1, |it| it.times.saturating_add(1));
        self.done = Some(Done { key: finished.idempotency_key.clone(), times, at: now });
    }

    /// How much longer the last read is good enough, or the next one waits since reads fail; `None`: not any more.
    pub(super) fn fresh_for(&self, every: Duration) -> Option<Duration> {
        let every = if self.hinted { every.min(HINTED) } else { every };
        let left = if let Some(failed) = &self.failed {
            failed.until.saturating_duration_since(Instant::now())
        } else {
            every.saturating_sub(self.at?.elapsed())
        };
        (!left.is_zero()).then_some(left)
    }

    /// Whether a read with these is due.
    pub(super) fn is_due(&mut self, with: &ReadWith) -> bool {
        if self.failed.as_ref().is_some_and(|failed| failed.with != *with) {
            self.failed = None;
            self.at = None;
        }
        let calm = if self.view == GroupView::Unknown { BUSY } else { CALM };
        self.fresh_for(self.every.unwrap_or(calm)).is_none()
    }

    /// A read begins. What happens from now on it may not show.
    pub(super) const fn begin(&mut self) {
        self.hinted = false;
    }

    /// It was read.
    pub(super) fn found(&mut self, reading: Reading, machines: &[&Machine]) {
        self.ended();
        self.nothing = 0;
        let mut reading = reading.counted(&self.absent, machines);
        if self.is_too_soon() {
            // What is missed the first time is missed by the next look that counts. A Machine that is done needs no second.
            let done = |uid: &str| machines.iter().any(|it| it.uid() == uid && awaits_its_end(it));
            let before = &self.absent;
            reading.absent.retain(|uid, looks| {
                *looks = before.get(uid).copied().unwrap_or_else(|| done(uid).into());
                *looks > 0
            });
        } else if !reading.absent.is_empty() {
            self.looked = Some(Instant::now());
        }
        self.absent.clone_from(&reading.absent);
        self.view = GroupView::Known(Arc::new(reading));
    }

    /// The driver says that there is none.
    pub(super) fn missed(&mut self) {
        self.ended();
        if self.nothing == 0 || !self.is_too_soon() {
            self.nothing = self.nothing.saturating_add(1);
            self.looked = Some(Instant::now());
        }
        self.view = GroupView::Absent(self.nothing);
    }

    /// It could not be read. `room`: the wait for a driver that is out of room, and does not say for how long.
    pub(super) fn unreadable(&mut self, failure: Failure, with: ReadWith, room: Duration) {
        let times = self.failed.take().map_or(0, |failed| failed.times).saturating_add(1);
        self.ended();
        let until = Instant::now() + group_read_again(&failure, times, room);
        self.failed = Some(Failed { times, until, with });
        self.view = GroupView::Unreadable(Box::new(failure));
    }

    fn ended(&mut self) {
        self.at = Some(Instant::now());
        self.failed = None;
    }

    /// Whether a look counted just now: two looks within a moment are as good as one.
    fn is_too_soon(&self) -> bool {
        self.looked.is_some_and(|at| at.elapsed() < BUSY)
    }
}
