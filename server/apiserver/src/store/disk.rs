//! The revision log on redb.

use std::{
    path::Path,
    sync::{PoisonError, RwLock},
};

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::{
    Change, FIRST_REVISION, Key, OpenError, StorageError,
    log::{Log, Opened, Row, superseded},
    state::State,
};

/// revision -> (operation, previous revision, key, JSON text). The current objects are what is
/// left when the log is read in order, so there is no second table to keep in step with it.
const LOG: TableDefinition<'_, u64, (u8, u64, &str, &[u8])> = TableDefinition::new("log");
/// Facts about the log as a whole.
const META: TableDefinition<'_, &str, u128> = TableDefinition::new("meta");

const META_FORMAT: &str = "format";
const META_UID: &str = "uid";
const META_COMPACTED: &str = "compacted";

/// The format that this program reads and writes.
const FORMAT: u64 = 1;
/// Memory that redb may use for pages; every current object is in memory anyway.
const CACHE_BYTES: usize = 16 << 20;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// A log in a redb database. Taken out on close, so that the file is free even while watches or
/// handles are still around.
#[derive(Debug)]
pub(super) struct DiskLog(RwLock<Option<Database>>);

impl DiskLog {
    /// Opens or creates the log in a file, and reads the state it holds. Blocks.
    pub(super) fn open(path: &Path) -> Result<(Self, Opened, State), OpenError> {
        let database = builder().create(path).map_err(|error| open_error(path, error))?;
        restrict(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
        Self::prepare(database, path)
    }

    /// Opens or creates the log over redb's own storage abstraction, which tests make fail.
    #[cfg(test)]
    pub(super) fn open_over(
        backend: impl redb::StorageBackend,
    ) -> Result<(Self, Opened, State), OpenError> {
        let path = Path::new("test");
        let database =
            builder().create_with_backend(backend).map_err(|error| open_error(path, error))?;
        Self::prepare(database, path)
    }

    fn prepare(database: Database, path: &Path) -> Result<(Self, Opened, State), OpenError> {
        let corrupt = |source| OpenError::Corrupt { path: path.into(), source };
        let (format, opened) = initialize(&database).map_err(corrupt)?;
        if format != FORMAT {
            return Err(OpenError::Version { path: path.into(), found: format, supported: FORMAT });
        }
        let state = load(&database, &opened).map_err(corrupt)?;
        Ok((Self(RwLock::new(Some(database))), opened, state))
    }

    fn with<T>(
        &self,
        access: impl FnOnce(&Database) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let database = self.0.read().unwrap_or_else(PoisonError::into_inner);
        access(database.as_ref().ok_or(StorageError::Closed)?)
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    // A file that was tampered with must be an error, not a panic at the first damaged page.
    builder.set_check_integrity_on_open(true);
    builder
}

fn open_error(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_path_buf();
    if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
        return OpenError::Locked { path };
    }
    if let DatabaseError::Storage(redb::StorageError::Io(source)) = error {
        let damaged = matches!(
            source.kind(),
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
        );
        return if damaged {
            OpenError::Corrupt { path, source: redb::StorageError::Io(source).into() }
        } else {
            OpenError::Io { path, source }
        };
    }
    OpenError::Corrupt { path, source: error.into() }
}

/// The log holds secrets: only its owner may read it.
fn restrict(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Reads what the log says about itself, after writing it into a new one.
fn initialize(database: &Database) -> Result<(u64, Opened), StorageError> {
    let transaction = database.begin_write()?;
    let read = {
        let mut meta = transaction.open_table(META)?;
        transaction.open_table(LOG)?;
        if meta.get(META_FORMAT)?.is_none() {
            meta.insert(META_FORMAT, u128::from(FORMAT))?;
            meta.insert(META_UID, uuid::Uuid::new_v4().as_u128())?;
            meta.insert(META_COMPACTED, u128::from(FIRST_REVISION))?;
        }
        let uid = uuid::Uuid::from_u128(number(&meta, META_UID)?);
        let compacted = u64::try_from(number(&meta, META_COMPACTED)?).unwrap_or(FIRST_REVISION);
        let format = u64::try_from(number(&meta, META_FORMAT)?).unwrap_or(u64::MAX);
        (format, Opened { uid, compacted })
    };
    transaction.commit()?;
    Ok(read)
}

fn number(meta: &Table<'_, &'static str, u128>, name: &'static str) -> Result<u128, StorageError> {
    Ok(meta.get(name)?.map_or(0, |value| value.value()))
}

/// Replays the log: what is left at its end are the current objects.
fn load(database: &Database, opened: &Opened) -> Result<State, StorageError> {
    let mut state = State::new(opened.compacted, opened.compacted);
    let transaction = database.begin_read()?;
    let log = transaction.open_table(LOG)?;
    for entry in log.range::<u64>(..)? {
        let (revision, row) = entry?;
        let row = decode(revision.value(), row.value())?;
        state.load(row.revision, row.key, row.change);
    }
    Ok(state)
}

fn decode(revision: u64, row: (u8, u64, &str, &[u8])) -> Result<Row, StorageError> {
    let (operation, previous, key, value) = row;
    let value = Bytes::copy_from_slice(value);
    let change = match operation {
        PUT => Change::Put(value),
        DELETE => Change::Delete(value),
        _ => return Err(StorageError::Row { revision }),
    };
    Ok(Row { revision, previous, key: Key::from_text(key), change })
}

impl Log for DiskLog {
    fn append(&self, rows: &[Row]) -> Result<(), StorageError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut log = transaction.open_table(LOG)?;
                for row in rows {
                    let operation = match row.change {
                        Change::Put(_) => PUT,
                        Change::Delete(_) => DELETE,
                    };
                    let value = row.change.value().as_ref();
                    log.insert(row.revision, (operation, row.previous, row.key.as_str(), value))?;
                }
            }
            transaction.commit()?;
            Ok(())
        })
    }

    fn read(&self, after: u64, limit: usize) -> Result<Vec<Row>, StorageError> {
        self.with(|database| {
            let log = database.begin_read()?.open_table(LOG)?;
            log.range(after.saturating_add(1)..)?
                .take(limit)
                .map(|entry| {
                    let (revision, row) = entry?;
                    decode(revision.value(), row.value())
                })
                .collect()
        })
    }

    fn row(&self, revision: u64) -> Result<Option<Row>, StorageError> {
        self.with(|database| {
            let log = database.begin_read()?.open_table(LOG)?;
            log.get(revision)?.map(|row| decode(revision, row.value())).transpose()
        })
    }

    fn compact(&self, from: u64, to: u64) -> Result<(), StorageError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut log = transaction.open_table(LOG)?;
                let rows = log
                    .range(from.saturating_add(1)..=to)?
                    .map(|entry| {
                        let (revision, row) = entry?;
                        decode(revision.value(), row.value())
                    })
                    .collect::<Result<Vec<_>, StorageError>>()?;
                for revision in superseded(&rows) {
                    log.remove(revision)?;
                }
                let mut meta = transaction.open_table(META)?;
                meta.insert(META_COMPACTED, u128::from(to))?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    fn close(&self) {
        drop(self.0.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}
