//! One ordered, durable revision log for all kinds, and watches over it.
//!
//! * [`Store`] is the handle: get, list, write with an expectation, watch.
//! * `log` is the log as a backend must provide it; in memory there, on redb in `disk`.
//! * `state` is what readers see: the current objects, and a window of recent events; `index` finds
//!   objects by the values of some fields.
//! * `shared` commits batches: judge, append, sync, then publish. Nothing is visible before it is durable, and the
//!   order of revisions is the order in which everyone sees them. A full disk is waited for: the log is opened anew,
//!   and goes on if it holds all that was acknowledged. `Store::failed` reports any other failure.
//! * `history` reads the past, `watch` follows the present, `retention` says how much past is kept.

mod disk;
mod error;
mod history;
mod index;
mod key;
mod log;
mod record;
mod restore;
mod retention;
pub(crate) mod secret;
mod shared;
mod state;
mod watch;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

use std::{path::PathBuf, sync::Arc};

pub use error::{HistoryError, OpenError, StorageError, WriteError};
use index::Wanted;
pub use key::{Key, Prefix};
pub use record::{
    Change, Event, Expect, Page, Record, SharedEvent, Unreadable, object_at, remains,
};
pub use restore::{CreateError, create, in_memory};
pub use retention::Retention;
pub use shared::Health;
use shared::Shared;
pub use watch::Watch;
use writer::Writer;

/// The revision of a new store, before its first write. Not 1: clients that make up a small
/// revision, to see how an expired one is answered, must find it expired.
pub const FIRST_REVISION: u64 = 100;

/// Where a store keeps its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Nowhere: the objects end with the process. Uses no thread and no wall clock, so a test on
    /// a paused runtime is deterministic.
    Memory,
    /// In this file, which is created if missing.
    File(PathBuf),
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Where the log is.
    pub backend: Backend,
    /// How much history is kept.
    pub retention: Retention,
}

impl StoreOptions {
    /// A store in memory with the usual retention.
    pub fn memory() -> Self {
        Self { backend: Backend::Memory, retention: Retention::default() }
    }

    /// A store in `path` with the usual retention.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { backend: Backend::File(path.into()), retention: Retention::default() }
    }
}

/// A handle to the store. Cheap to clone; the store is closed by [`Store::close`], or when the
/// last handle is gone.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    writer: Writer,
}

impl Store {
    /// Opens a store. Must be called inside a tokio runtime.
    pub async fn open(options: StoreOptions) -> Result<Self, OpenError> {
        writer::open(options).await
    }

    /// Identifies this log for as long as its file lives; new for every store in memory.
    pub fn uid(&self) -> uuid::Uuid {
        self.shared.uid
    }

    /// The latest revision; a new store starts at [`FIRST_REVISION`].
    pub fn revision(&self) -> u64 {
        self.shared.state().revision
    }

    /// The oldest revision that can still be watched from or listed at.
    pub fn compacted(&self) -> u64 {
        self.shared.state().compacted
    }

    /// The current state of an object.
    pub fn get(&self, key: &Key) -> Option<Record> {
        self.shared.state().get(key).cloned()
    }

    /// The objects of a range after `after` (exclusive), at most `limit`, as they are now.
    pub fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: Option<usize>) -> Page {
        self.shared.state().page(prefix, after, limit.unwrap_or(usize::MAX))
    }

    /// The same as they were at `revision`: how the later pages of a list stay consistent with
    /// its first one. Fails if that revision is compacted or not reached yet.
    pub async fn list_at(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: Option<usize>,
        revision: u64,
    ) -> Result<Page, HistoryError> {
        self.shared.list_at(prefix, after, limit.unwrap_or(usize::MAX), revision).await
    }

    /// The current objects of a range after `after` that may have this value in the field: all matching objects, and few
    /// others. None if the field has no index, or if the current revision is not `at`.
    pub(crate) fn list_by(
        &self,
        prefix: &Prefix,
        (label, value): (&str, &str),
        after: Option<&Key>,
        at: Option<u64>,
    ) -> Option<Page> {
        let wanted = Wanted::of(prefix, label, value)?;
        let state = self.shared.state();
        at.is_none_or(|at| at == state.revision).then(|| state.found(wanted, prefix, after))
    }

    /// Does one change if `expect` holds, and returns its revision once it is durable and visible.
    /// A caller that stops waiting may or may not find it done.
    pub async fn write(&self, key: Key, expect: Expect, change: Change) -> Result<u64, WriteError> {
        self.writer.write(&self.shared, key, expect, change).await
    }

    /// Whether the store can be written now. If not, it is made to look again.
    pub fn health(&self) -> Health {
        let health = self.shared.health().borrow().clone();
        if health != Health::Good {
            self.writer.repair();
        }
        health
    }

    /// Waits until the store has failed for good, and says why. A disk that is full is waited for.
    pub async fn failed(&self) -> Arc<str> {
        let mut health = self.shared.health();
        loop {
            if let Health::Failed(reason) = &*health.borrow_and_update() {
                return Arc::clone(reason);
            }
            if health.changed().await.is_err() {
                // this handle holds the sender
                std::future::pending::<()>().await;
            }
        }
    }

    /// What changed in a range after a revision, oldest first, and up to where; none if that is
    /// further back than memory reaches. For indexes, which then begin anew.
    pub(crate) fn recent(&self, prefix: &Prefix, after: u64) -> Option<(Vec<SharedEvent>, u64)> {
        let state = self.shared.state();
        let recent = state.recent(after)?;
        let events = recent.filter(|event| prefix.contains(&event.key)).cloned().collect();
        Some((events, state.revision))
    }

    /// The changes of a range after a revision. A revision that is not reached yet is waited for.
    pub fn watch(&self, prefix: Prefix, after: u64) -> Result<Watch, HistoryError> {
        let oldest = self.compacted();
        if after < oldest {
            return Err(HistoryError::Compacted { revision: after, oldest });
        }
        Ok(Watch::new(Arc::clone(&self.shared), prefix, after))
    }

    /// Finishes the writes already asked for, ends all watches and releases the file. Later
    /// writes through other handles fail with [`WriteError::Closed`].
    pub async fn close(self) {
        self.writer.close(&self.shared).await;
    }
}
