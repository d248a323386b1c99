//! How the store fails.

use std::{io, path::PathBuf, sync::Arc};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another store of this one) has the file open.
    #[error("{} is in use by another process; stop it, or choose another data directory", path.display())]
    Locked {
        /// The store's file.
        path: PathBuf,
    },
    /// An unknown version of this program wrote the file.
    #[error("{} has format {found}, this program reads format {supported}; use the program that wrote it", path.display())]
    Version {
        /// The store's file.
        path: PathBuf,
        /// The format number in the file.
        found: u64,
        /// The format number this program writes.
        supported: u64,
    },
    /// The file is no store, or was damaged.
    #[error("{} is not readable as a store; restore it from a copy, or remove it to start empty", path.display())]
    Corrupt {
        /// The store's file.
        path: PathBuf,
        /// The exact fault.
        source: StorageError,
    },
    /// The file holds nothing at all, which no file of ours does.
    #[error("{} is empty: what it held is lost; restore it from a backup, or remove it to start with no objects", path.display())]
    Empty {
        /// The store's file.
        path: PathBuf,
    },
    /// The file could not be created or read.
    #[error("cannot open {}", path.display())]
    Io {
        /// The store's file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
}

/// Why a write was not done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The expectation does not hold. Nothing was written.
    #[error("the object is not as expected, it is at revision {current:?}")]
    Conflict {
        /// The object's revision now; none if it does not exist.
        current: Option<u64>,
    },
    /// The store is closed. Nothing was written.
    #[error("the store is closed")]
    Closed,
    /// The disk failed. Whether this write survives is unknown until the store works again: see
    /// [`Health`](super::Health).
    #[error("{}", .0.told())]
    Storage(#[source] Arc<StorageError>),
}

/// A failure below the store: the disk, or what was found on it.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The database refused.
    #[error("the database failed")]
    Database(#[source] Box<redb::Error>),
    /// A row of the log is not what was written.
    #[error("revision {revision} of the log is damaged")]
    Row {
        /// The revision of the row.
        revision: u64,
    },
    /// The store was closed while it was being read.
    #[error("the store is closed")]
    Closed,
    /// What is on the disk after a failure does not go on where the log was.
    #[error("the log on the disk is not the one that was written: {found}")]
    Diverged {
        /// The difference from the log.
        found: &'static str,
    },
}

impl StorageError {
    /// Whether all that is missing is space.
    pub(super) fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Self::Database(error) = self else { return false };
        let redb::Error::Io(error) = error.as_ref() else { return false };
        matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }

    /// The error and the remedy in a line.
    pub(super) fn told(&self) -> String {
        if self.is_full() {
            return "the disk of the store is full: reads go on, and writes do as soon as there is \
                    space"
                .to_owned();
        }
        let cause = match self {
            Self::Database(error) => error.to_string(),
            Self::Row { .. } | Self::Closed | Self::Diverged { .. } => self.to_string(),
        };
        format!("the storage failed: {cause}")
    }
}

impl<E: Into<redb::Error>> From<E> for StorageError {
    fn from(error: E) -> Self {
        Self::Database(Box::new(error.into()))
    }
}

/// Why history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The asked part of the log is gone.
    #[error("revision {revision} is compacted, the oldest kept is {oldest}")]
    Compacted {
        /// The revision asked for.
        revision: u64,
        /// The oldest revision that can still be asked for.
        oldest: u64,
    },
    /// The revision is not written yet.
    #[error("revision {revision} is not reached yet, the latest is {latest}")]
    Future {
        /// The revision asked for.
        revision: u64,
        /// The latest revision.
        latest: u64,
    },
    /// The disk failed.
    #[error("the storage failed")]
    Storage(#[source] StorageError),
}
