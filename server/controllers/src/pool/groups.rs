//! The memory of this process about each group, and when to read the group again. Safe to lose: a new leader reads the
//! groups.

use std::collections::HashMap;
use std::time::Duration;

use ostler_api::{Machine, MachinePool, Revision};
use ostler_lifecycle::operation::OperationView;
use ostler_lifecycle::pool::{BUSY, CALM, GroupView, Known, Read, Slot, Snapshot};
use ostler_lifecycle::retry::group_read_again;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::watch::ObjectName;

/// How often a group is read at most that keeps changing.
const HINTED: Duration = Duration::from_secs(2);

/// By name of the pool. Bounded by the existing pools: a deleted pool is forgotten, also if a user removed its
/// finalizer.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<ObjectName, Group>>);

/// The memory about one group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// UID of the pool: a new pool of the same name has another group.
    uid: String,
    pub(super) known: Known,
    /// When the last read ended; `None`: none since the last operation.
    at: Option<Instant>,
    /// How many operations were recorded: a read begun before the last of them is ignored.
    epoch: u64,
    /// Whether something happened since the last read began.
    hinted: bool,
    /// Failed reads since the last success.
    failed: Option<Failed>,
    /// When a look that something is missing last counted.
    looked: Option<Instant>,
    /// How soon it is read again.
    every: Option<Duration>,
    /// Whether the pool and the Machines of all pools were read once by this process, and not only taken from its cache.
    pub(super) listed: bool,
    /// Whether the API server refused the last Machine that was created for an instance.
    pub(super) refused_machines: bool,
    /// The bootstrap tokens, and when they were read.
    pub(super) tokens: Option<(Instant, Vec<Slot>)>,
}

/// Reads in a row that failed.
#[derive(Debug)]
struct Failed {
    times: i32,
    /// When the next read is due.
    until: Instant,
    /// The revisions of the failed reads. Other revisions are tried immediately.
    with: ReadWith,
}

/// The revisions of class and secret that a group is read with.
pub(super) type ReadWith = (Revision, Option<Revision>);

impl Groups {
    /// Changes the memory about a pool's group. A read of a large group is not copied for the change.
    pub(super) fn with<T>(&self, pool: &MachinePool, change: impl FnOnce(&mut Group) -> T) -> T {
        let mut groups = self.0.lock();
        let group = groups.entry(ObjectName::of(pool)).or_default();
        if group.uid != pool.uid() {
            *group = Group { uid: pool.uid().to_owned(), ..Group::default() };
        }
        change(group)
    }

    /// Looks at the memory about a group.
    pub(super) fn look<T>(&self, pool: &MachinePool, look: impl Fn(&Group) -> T) -> T {
        let groups = self.0.lock();
        let group = groups.get(&ObjectName::of(pool)).filter(|group| group.uid == pool.uid());
        group.map_or_else(|| look(&Group::default()), &look)
    }

    /// The group may differ from the last read: read it soon.
    pub(super) fn doubt(&self, pool: &MachinePool) {
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
    /// The decision from this snapshot is written down, so it happened. After an operation the group is read again.
    pub(super) fn recorded(&mut self, snap: &Snapshot, reread: bool, every: Duration) {
        (self.listed, self.every) = (true, Some(every));
        if let OperationView::Finished(finished) = &snap.operation {
            self.known.succeeded(finished, (&snap.pool, &snap.machines), snap.now);
        }
        if reread {
            self.outdate();
        }
    }

    /// Earlier reads decide nothing any more.
    pub(super) fn outdate(&mut self) {
        self.epoch += 1;
        self.at = None;
        self.known.outdate();
    }

    /// Whether nothing was read since the last operation.
    pub(super) fn is_unread(&self) -> bool {
        self.known.view == GroupView::Unknown
    }

    /// How much longer the last read is good enough, or the next read waits after failures; zero: a read is due.
    pub(super) fn fresh_for(&self, with: &ReadWith) -> Duration {
        let calm = if self.is_unread() { BUSY } else { CALM };
        let every = self.every.unwrap_or(calm);
        let every = if self.hinted { every.min(HINTED) } else { every };
        match (&self.failed, self.at) {
            (Some(failed), _) if failed.with == *with => {
                failed.until.saturating_duration_since(Instant::now())
            }
            (None, Some(at)) => every.saturating_sub(at.elapsed()),
            (Some(_), _) | (None, None) => Duration::ZERO,
        }
    }

    /// The epoch for a read that begins now.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A read begins. The read may not show changes from now on.
    pub(super) fn begin(&mut self) {
        self.hinted = false;
        self.known.begin();
    }

    /// A read of this epoch ended; false: the read is too old. `room`: the wait for a driver that is out of room, and
    /// does not say for how long.
    pub(super) fn ended(
        &mut self,
        read: Read,
        machines: &[&Machine],
        (epoch, with, room): (u64, &ReadWith, Duration),
    ) -> bool {
        if epoch != self.epoch {
            return false;
        }
        let now = Instant::now();
        let before = self.failed.take().filter(|failed| failed.with == *with);
        if let Read::Failed(failure) = &read {
            let times = before.map_or(0, |failed| failed.times).saturating_add(1);
            let until = now + group_read_again(failure, times, room);
            self.failed = Some(Failed { times, until, with: with.clone() });
        }
        self.at = Some(now);
        let soon = self.looked.is_some_and(|at| at.elapsed() < BUSY);
        if self.known.take(read, machines, soon) {
            self.looked = Some(now);
        }
        true
    }
}
