//! Directories for the sockets of drivers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::record::Record;
use crate::socket::LONGEST_PATH;

/// Names of the directories begin with this; six letters follow.
const PREFIX: &str = "driver-";
/// The record of the directory's owner, and of the trees that were started for the directory.
const RECORD: &str = "processes";
const LONGEST_PARENT: usize = LONGEST_PATH - "/driver-XXXXXX/driver.sock".len();
/// Until a new directory has its record, another process may take it for a left one and remove it.
const TRIES: u32 = 3;

/// A directory for the socket of one driver that only this user can enter; dropping the value removes the directory.
#[derive(Debug)]
pub struct SocketDirectory {
    path: PathBuf,
    record: Record,
}

impl SocketDirectory {
    /// A new directory in `parent`, or among the temporary files if `parent` is too long for the path of a socket.
    /// Directories of killed processes are removed there, and the trees that these processes left are ended. `alone`: no
    /// other process makes directories in `parent`.
    ///
    /// # Errors
    /// It cannot be made, or what is left cannot be ended.
    pub async fn new(parent: &Path, alone: bool) -> anyhow::Result<Self> {
        Self::clear(parent, alone).await?;
        let short = parent.as_os_str().len() <= LONGEST_PARENT;
        if short {
            return make(parent).await;
        }
        let parent = std::env::temp_dir();
        Self::clear(&parent, false).await?;
        make(&parent).await
    }

    /// Removes those in `parent` that nobody holds any more, as [`Self::new`] does.
    ///
    /// # Errors
    /// The rest of a killed process cannot be ended.
    pub async fn clear(parent: &Path, alone: bool) -> anyhow::Result<()> {
        let Ok(entries) = fs::read_dir(parent) else { return Ok(()) };
        for path in entries.flatten().map(|entry| entry.path()) {
            let record = path.join(RECORD);
            if is_own(&path) && (alone || record.exists()) {
                let left = Record::try_claim(&record).await;
                if let Some(left) = left.with_context(|| format!("{} is left", path.display()))? {
                    remove(&path);
                    drop(left);
                }
            }
        }
        Ok(())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record of the trees that are started for it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Where the driver is to listen.
    pub fn socket(&self) -> PathBuf {
        self.path.join("driver.sock")
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

async fn make(parent: &Path) -> anyhow::Result<SocketDirectory> {
    let unusable = || format!("no directory can be made in {}", parent.display());
    let mut tries = 0;
    loop {
        let path = nix::unistd::mkdtemp(&parent.join(format!("{PREFIX}XXXXXX")));
        let path = path.with_context(unusable)?;
        match Record::try_claim(&path.join(RECORD)).await {
            Ok(Some(record)) => return Ok(SocketDirectory { path, record }),
            Ok(None) | Err(_) if tries < TRIES => tries += 1,
            Ok(None) => anyhow::bail!("{}: each one is removed at once", unusable()),
            Err(error) => return Err(error).with_context(unusable),
        }
    }
}

/// Whether only this user could have made the directory.
fn is_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let named = name.and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|it| it.len() == 6);
    let own = nix::unistd::geteuid().as_raw();
    let private =
        |found: fs::Metadata| found.is_dir() && found.uid() == own && found.mode() & 0o777 == 0o700;
    named && fs::symlink_metadata(path).is_ok_and(private)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::debug!(%error, path = %path.display(), "the directory of a driver's socket stays");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;

    fn left(parent: &Path, name: &str) -> PathBuf {
        let path = parent.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    #[tokio::test]
    async fn directories_without_an_owner_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let held = SocketDirectory::new(parent.path(), false).await.unwrap();
        let (killed, early) =
            (left(parent.path(), "driver-aaaaaa"), left(parent.path(), "driver-bbbbbb"));
        fs::write(killed.join(RECORD), "").unwrap();
        let other = left(parent.path(), "driver-of-mine");
        let next = SocketDirectory::new(parent.path(), false).await.unwrap();
        assert!(held.path().exists() && early.exists() && other.exists() && !killed.exists());
        // Of a version that had no records.
        SocketDirectory::clear(parent.path(), true).await.unwrap();
        assert!(held.path().exists() && next.path().exists() && other.exists() && !early.exists());
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn where_a_path_would_be_too_long_it_is_among_the_temporary_files() {
        let parent = tempfile::tempdir().unwrap();
        let deep = parent.path().join("d".repeat(100));
        fs::create_dir(&deep).unwrap();
        let made = SocketDirectory::new(&deep, true).await.unwrap();
        assert!(made.path().starts_with(std::env::temp_dir()) && !made.path().starts_with(&deep));
        assert!(made.socket().as_os_str().len() <= LONGEST_PATH);
    }
}
