//! The revision log: what a backend must do, and the one in memory.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;

use super::{Change, Key, StorageError};

/// One row of the log: the change, and the revision of the same key's row before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) revision: u64,
    /// The revision this one replaces, 0 if the key did not exist.
    pub(super) previous: u64,
    pub(super) key: Key,
    pub(super) change: Change,
}

/// How many bytes of objects are still to be read.
pub(super) struct Room(pub(super) usize);

impl Room {
    /// Whether there is room for anything; what is taken then may be larger.
    pub(super) fn takes(&mut self, change: &Change) -> bool {
        let any = self.0 > 0;
        self.0 = self.0.saturating_sub(change.value().len().max(1));
        any
    }
}

/// The state of a log at its opening.
#[derive(Debug)]
pub(super) struct Opened {
    /// Identifies this log for ever, whatever happens to the process.
    pub(super) uid: uuid::Uuid,
    /// History before this revision is gone.
    pub(super) compacted: u64,
    /// About how many bytes of history there are after it.
    pub(super) history: u64,
}

/// A durable, ordered log of rows. All calls block.
pub(super) trait Log: fmt::Debug + Send + Sync {
    /// Adds rows in order; on return they survive a power cut.
    fn append(&self, rows: &[Row]) -> Result<(), StorageError>;

    /// Up to `limit` rows after revision `after`, in order; ends with the row that brings the size of the objects to
    /// `bytes`.
    fn read(&self, after: u64, limit: usize, bytes: usize) -> Result<Vec<Row>, StorageError>;

    /// The row of one revision, if it is still there.
    fn row(&self, revision: u64) -> Result<Option<Row>, StorageError>;

    /// Forgets history up to and including `to`: of each key only its last row up to there stays,
    /// and none if that one deletes it. Begins where the last compaction that succeeded ended: a
    /// row left behind would be the object again once the later ones are gone.
    fn compact(&self, to: u64) -> Result<(), StorageError>;

    /// After a failure: opens what is on the disk anew, and tries whether it can be written.
    fn reopen(&self) -> Result<(), StorageError>;

    /// Ends all access; what was appended stays.
    fn close(&self);
}

/// Revisions that the compaction of a row removes: the replaced revision, and the row's own if it is a deletion.
pub(super) fn superseded(
    revision: u64,
    previous: u64,
    deletion: bool,
) -> impl Iterator<Item = u64> {
    let replaced = (previous != 0).then_some(previous);
    replaced.into_iter().chain(deletion.then_some(revision))
}

/// A log without a disk, for tests.
#[derive(Debug, Default)]
pub(super) struct MemoryLog {
    rows: RwLock<BTreeMap<u64, Row>>,
    compacted: AtomicU64,
}

impl Log for MemoryLog {
    fn append(&self, rows: &[Row]) -> Result<(), StorageError> {
        let mut log = self.rows.write();
        log.extend(rows.iter().map(|row| (row.revision, row.clone())));
        Ok(())
    }

    fn read(&self, after: u64, limit: usize, bytes: usize) -> Result<Vec<Row>, StorageError> {
        let log = self.rows.read();
        let rows = log.range((Bound::Excluded(after), Bound::Unbounded));
        let mut room = Room(bytes);
        let rows = rows.take(limit).map(|(_, row)| row);
        Ok(rows.take_while(|row| room.takes(&row.change)).cloned().collect())
    }

    fn row(&self, revision: u64) -> Result<Option<Row>, StorageError> {
        Ok(self.rows.read().get(&revision).cloned())
    }

    fn compact(&self, to: u64) -> Result<(), StorageError> {
        let mut log = self.rows.write();
        let from = self.compacted.swap(to, Ordering::Relaxed);
        let range = (Bound::Excluded(from), Bound::Included(to));
        let rows = log.range(range).flat_map(|(_, row)| {
            superseded(row.revision, row.previous, matches!(row.change, Change::Delete(_)))
        });
        for revision in rows.collect::<Vec<_>>() {
            log.remove(&revision);
        }
        Ok(())
    }

    fn reopen(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn close(&self) {}
}
