//! Makes a store of objects that were written down elsewhere.

use std::{io, path::Path};

use crate::store::secret::create_private;

use super::{
    Change, OpenError, Record, Retention, StorageError, Store,
    disk::{FORMAT, LOG, META, META_COMPACTED, META_FORMAT, META_UID, PUT, builder, open_error},
    state::State,
    writer,
};

/// How far the revisions of a restored store are beyond those of the backup. Writes after the
/// backup were lost with their revisions, and clients remember them: none of them may ever mean
/// something else, and who asks for what came after one of them is told to list again.
const BEYOND: u64 = 1_000_000_000;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The file is there already, or cannot be made.
    #[error("the objects cannot be written")]
    File(#[from] OpenError),
    /// The database refused.
    #[error("the objects cannot be written")]
    Storage(#[source] StorageError),
    /// The objects could not be had.
    #[error("the objects cannot be read")]
    Objects(#[source] io::Error),
}

/// Makes a store in a file that is not there yet, of objects as they were at `revision`, all or
/// nothing. Returns how many there were. Blocks.
///
/// The store is another one than that of the backup: its uid is new, its revisions go on far
/// beyond, and its history begins there.
pub fn create(
    path: &Path,
    revision: u64,
    records: &mut dyn Iterator<Item = io::Result<Record>>,
) -> Result<u64, CreateError> {
    let file = create_private(path)
        .map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
    let database = redb::backends::FileBackend::new(file)
        .and_then(|backend| builder().create_with_backend(backend))
        .map_err(|error| open_error(path, error))?;
    fill(&database, revision, records)
}

/// The same in memory, to try what would come of it.
///
/// # Errors
/// The objects cannot be had.
pub fn in_memory(
    revision: u64,
    records: &mut dyn Iterator<Item = io::Result<Record>>,
) -> io::Result<Store> {
    let from = revision.saturating_add(BEYOND);
    let mut state = State::new(from, from);
    for record in records {
        let Record { key, revision, value } = record?;
        state.load(revision, &key, Change::Put(value));
    }
    Ok(writer::in_memory(state, Retention::default()))
}

fn fill(
    database: &redb::Database,
    revision: u64,
    records: &mut dyn Iterator<Item = io::Result<Record>>,
) -> Result<u64, CreateError> {
    let failed = |error: redb::Error| CreateError::Storage(error.into());
    let transaction = database.begin_write().map_err(|error| failed(error.into()))?;
    let mut count = 0;
    {
        let mut log = transaction.open_table(LOG).map_err(|error| failed(error.into()))?;
        for record in records {
            let Record { key, revision, value } = record.map_err(CreateError::Objects)?;
            let row = (PUT, 0, key.as_str(), value.as_ref());
            log.insert(revision, row).map_err(|error| failed(error.into()))?;
            count += 1;
        }
        let mut meta = transaction.open_table(META).map_err(|error| failed(error.into()))?;
        let facts = [
            (META_FORMAT, u128::from(FORMAT)),
            (META_UID, uuid::Uuid::new_v4().as_u128()),
            (META_COMPACTED, u128::from(revision.saturating_add(BEYOND))),
        ];
        for (name, value) in facts {
            meta.insert(name, value).map_err(|error| failed(error.into()))?;
        }
    }
    transaction.commit().map_err(|error| failed(error.into()))?;
    Ok(count)
}
