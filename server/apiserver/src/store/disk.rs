//! The revision log on redb.

use std::{fmt, fs, io::ErrorKind, os::unix::fs::PermissionsExt as _, path::Path};

use bytes::Bytes;
use parking_lot::RwLock;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition,
    backends::FileBackend,
};

use super::{
    Change, FIRST_REVISION, Key, OpenError, StorageError,
    log::{Log, Opened, Room, Row, superseded},
    state::State,
};
use crate::store::secret::{check_own_file, create_private, sync_name};

/// revision -> (operation, previous revision, key, JSON text). The current objects are what is
/// left when the log is read in order, so there is no second table to keep in step with it.
pub(super) const LOG: TableDefinition<'_, u64, (u8, u64, &str, &[u8])> =
    TableDefinition::new("log");
/// Facts about the log as a whole.
pub(super) const META: TableDefinition<'_, &str, u128> = TableDefinition::new("meta");

pub(super) const META_FORMAT: &str = "format";
pub(super) const META_UID: &str = "uid";
pub(super) const META_COMPACTED: &str = "compacted";

/// The format version of the log.
pub(super) const FORMAT: u64 = 1;
/// Memory that redb may use for pages; every current object is in memory anyway.
const CACHE_BYTES: usize = 16 << 20;

pub(super) const PUT: u8 = 1;
const DELETE: u8 = 2;

/// How the database is opened, at first and again after a failure.
type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// A log in a redb database. Taken out on close, so that the file is free even while watches or
/// handles are still around.
pub(super) struct DiskLog {
    database: RwLock<Option<Database>>,
    open: Opener,
    uid: uuid::Uuid,
}

impl fmt::Debug for DiskLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskLog").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl DiskLog {
    /// Opens or creates the log in a file, and reads the state it holds. Blocks.
    pub(super) fn open(path: &Path) -> Result<(Self, Opened, State), OpenError> {
        let io = |source| OpenError::Io { path: path.into(), source };
        match check_own_file(path).map_err(io)? {
            None => create(path)?,
            Some(0) => return Err(OpenError::Empty { path: path.into() }),
            Some(_) => {}
        }
        let at = path.to_path_buf();
        let open: Opener = Box::new(move || builder().open(&at));
        let opened = Self::prepare(open, path)?;
        restrict(path).map_err(io)?;
        Ok(opened)
    }

    /// Opens or creates the log over redb's own storage abstraction, which tests make fail.
    #[cfg(test)]
    pub(super) fn open_over(
        backend: impl redb::StorageBackend + Clone,
    ) -> Result<(Self, Opened, State), OpenError> {
        let open: Opener = Box::new(move || builder().create_with_backend(backend.clone()));
        Self::prepare(open, Path::new("test"))
    }

    fn prepare(open: Opener, path: &Path) -> Result<(Self, Opened, State), OpenError> {
        let database = open().map_err(|error| open_error(path, error))?;
        let corrupt = |source| OpenError::Corrupt { path: path.into(), source };
        let (format, mut opened) = initialize(&database).map_err(corrupt)?;
        if format != FORMAT {
            return Err(OpenError::Version { path: path.into(), found: format, supported: FORMAT });
        }
        let state = load(&database, &mut opened).map_err(corrupt)?;
        let uid = opened.uid;
        Ok((Self { database: RwLock::new(Some(database)), open, uid }, opened, state))
    }

    fn replace(&self, database: Option<Database>) -> Option<Database> {
        let mut slot = self.database.write();
        std::mem::replace(&mut *slot, database)
    }

    fn with<T>(
        &self,
        access: impl FnOnce(&Database) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let database = self.database.read();
        access(database.as_ref().ok_or(StorageError::Closed)?)
    }
}

pub(super) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    // A file that was tampered with must be an error, not a panic at the first damaged page.
    builder.set_check_integrity_on_open(true);
    builder
}

/// Makes an empty log. The file gets its name when complete, so that an empty file of that name is never ours; a file
/// that another process makes meanwhile is left alone.
fn create(path: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { path: path.into(), source };
    let temporary = path.with_extension(format!("{}.new", uuid::Uuid::new_v4()));
    let made = fill(&temporary, path).and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // not every file system has links
        Err(_) => fs::rename(&temporary, path).map_err(io),
        Ok(()) => Ok(()),
    });
    // gone already, or only a name too many for the log
    fs::remove_file(&temporary).ok();
    made?;
    sync_name(path).map_err(io)
}

fn fill(temporary: &Path, path: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { path: path.into(), source };
    let file = create_private(temporary).map_err(io)?;
    let backend = FileBackend::new(file).map_err(|error| open_error(path, error))?;
    let database =
        builder().create_with_backend(backend).map_err(|error| open_error(path, error))?;
    initialize(&database)
        .map_err(|source| OpenError::Corrupt { path: path.into(), source })
        .map(drop)
}

pub(super) fn open_error(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_path_buf();
    if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
        return OpenError::Locked { path };
    }
    if let DatabaseError::Storage(redb::StorageError::Io(source)) = error {
        let damaged = matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof);
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
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// Reads the metadata of the log; a new log gets them first.
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
        let compacted = compacted(&meta)?;
        let format = u64::try_from(number(&meta, META_FORMAT)?).unwrap_or(u64::MAX);
        (format, Opened { uid, compacted, history: 0 })
    };
    transaction.commit()?;
    Ok(read)
}

fn number(meta: &Table<'_, &'static str, u128>, name: &'static str) -> Result<u128, StorageError> {
    Ok(meta.get(name)?.map_or(0, |value| value.value()))
}

fn compacted(meta: &Table<'_, &'static str, u128>) -> Result<u64, StorageError> {
    Ok(u64::try_from(number(meta, META_COMPACTED)?).unwrap_or(FIRST_REVISION))
}

/// Replays the log: what is left at its end are the current objects.
fn load(database: &Database, opened: &mut Opened) -> Result<State, StorageError> {
    let mut state = State::new(opened.compacted, opened.compacted);
    let transaction = database.begin_read()?;
    let log = transaction.open_table(LOG)?;
    for entry in log.range::<u64>(..)? {
        let (revision, row) = entry?;
        let row = decode(revision.value(), row.value())?;
        if row.revision > opened.compacted {
            opened.history += row.change.value().len() as u64;
        }
        state.load(row.revision, &row.key, row.change);
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

    fn read(&self, after: u64, limit: usize, bytes: usize) -> Result<Vec<Row>, StorageError> {
        self.with(|database| {
            let log = database.begin_read()?.open_table(LOG)?;
            let (mut rows, mut room) = (Vec::new(), Room(bytes));
            for entry in log.range(after.saturating_add(1)..)?.take(limit) {
                let (revision, row) = entry?;
                let row = decode(revision.value(), row.value())?;
                if !room.takes(&row.change) {
                    break;
                }
                rows.push(row);
            }
            Ok(rows)
        })
    }

    fn row(&self, revision: u64) -> Result<Option<Row>, StorageError> {
        self.with(|database| {
            let log = database.begin_read()?.open_table(LOG)?;
            log.get(revision)?.map(|row| decode(revision, row.value())).transpose()
        })
    }

    fn compact(&self, to: u64) -> Result<(), StorageError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut meta = transaction.open_table(META)?;
                let from = compacted(&meta)?;
                let mut log = transaction.open_table(LOG)?;
                let mut goes = Vec::new();
                for entry in log.range(from.saturating_add(1)..=to)? {
                    let (revision, row) = entry?;
                    let (operation, previous, ..) = row.value();
                    goes.extend(superseded(revision.value(), previous, operation == DELETE));
                }
                for revision in goes {
                    log.remove(revision)?;
                }
                meta.insert(META_COMPACTED, u128::from(to))?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    fn reopen(&self) -> Result<(), StorageError> {
        // the file is locked until the old one is gone
        drop(self.replace(None));
        let database = (self.open)()?;
        let (format, opened) = initialize(&database)?;
        if format != FORMAT || opened.uid != self.uid {
            return Err(StorageError::Diverged { found: "another store is in its place" });
        }
        let transaction = database.begin_write()?;
        // a value that is there already: it takes pages, as every write does
        transaction.open_table(META)?.insert(META_FORMAT, u128::from(FORMAT))?;
        transaction.commit()?;
        self.replace(Some(database));
        Ok(())
    }

    fn close(&self) {
        drop(self.replace(None));
    }
}
