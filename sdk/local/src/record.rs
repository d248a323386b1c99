//! Whose trees a file or a directory belongs to, so that the next owner finds what the last one left.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;
use uuid::Uuid;

use crate::marks;

/// For an owner that was killed to end.
const PREDECESSOR: Duration = Duration::from_secs(5);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// A file with the mark of the trees of its owner. The owner holds the lock of the file; there is one owner at most.
#[derive(Debug)]
pub struct Record {
    file: File,
    path: PathBuf,
    mark: String,
    ended: usize,
}

impl Record {
    /// Becomes the owner, and ends the processes that the last one left.
    ///
    /// # Errors
    /// Another process is the owner, the file cannot be used, or what is left cannot be ended.
    pub async fn claim(path: &Path) -> anyhow::Result<Self> {
        let until = Instant::now() + PREDECESSOR;
        loop {
            if let Some(claimed) = Self::try_claim(path).await? {
                return Ok(claimed);
            }
            if Instant::now() >= until {
                bail!("another process uses {}: end it, or choose another path", path.display());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The same; `None`: it has an owner.
    pub(crate) async fn try_claim(path: &Path) -> anyhow::Result<Option<Self>> {
        let Some(mut found) = Self::open(path)? else { return Ok(None) };
        let mut last = String::new();
        let read = (&found.file).take(128).read_to_string(&mut last);
        read.with_context(|| format!("{} cannot be read", path.display()))?;
        // Any other content names no tree.
        if let Ok(last) = Uuid::try_parse(last.trim()) {
            found.ended = marks::end(&format!("{last}."), true).await.map_err(|left| {
                anyhow::anyhow!(
                    "processes {left:?} were left by the last owner of {} and do not end, even after SIGKILL",
                    path.display()
                )
            })?;
        }
        found.write()?;
        Ok(Some(found))
    }

    /// The file, made if need be, with its lock.
    fn open(path: &Path) -> anyhow::Result<Option<Self>> {
        let unusable = || format!("{} cannot be used", path.display());
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            // Follows no link and waits for no pipe.
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
            .open(path)
            .with_context(unusable)?;
        let found = file.metadata().with_context(unusable)?;
        if !found.is_file() || found.uid() != nix::unistd::geteuid().as_raw() {
            bail!("{} is no file of this user: remove it", path.display());
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error).with_context(unusable),
        }
        let mark = Uuid::new_v4().to_string();
        let claimed = Self { file, path: path.to_owned(), mark, ended: 0 };
        // Another owner may have removed it meanwhile.
        Ok(claimed.is_there().then_some(claimed))
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let write = || -> std::io::Result<()> {
            let mut file = &self.file;
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(self.mark.as_bytes())
        };
        write().with_context(|| format!("{} cannot be written", self.path.display()))
    }

    /// Whether its file is still there.
    fn is_there(&self) -> bool {
        let inode = |found: std::fs::Metadata| (found.dev(), found.ino());
        let named = std::fs::symlink_metadata(&self.path).map(inode).ok();
        named.is_some() && self.file.metadata().map(inode).ok() == named
    }

    /// The beginning of the marks of the owner's trees.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// How many processes of the last owner were ended.
    pub fn ended(&self) -> usize {
        self.ended
    }
}
