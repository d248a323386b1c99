//! The directory in which `ostler up` keeps everything that must outlive it.
//!
//! ```text
//! DIR/lock                    held while an `up` or a `reset` works here
//! DIR/kubeconfig              for kubectl, 0600
//! DIR/admin.sock              where `ostler drivers` and grpcurl look into the core, 0600
//! DIR/api/                    database, keys and certificates of the API server
//! DIR/core-identity           who held the leader Lease here last
//! DIR/gateway                 where containers found the API server last
//! DIR/drivers.json            the drivers that were ever started here
//! DIR/drivers/NAME/token      how the driver proves to the core who it is, 0600
//! DIR/drivers/NAME/…          the driver's own files
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rand::RngExt as _;
use rand::distr::Alphanumeric;

use crate::up::DriverChoice;

/// Length of a minted token: 256 bits take 43 characters of this alphabet.
const TOKEN_LENGTH: usize = 43;

/// Who holds the leader Lease.
#[derive(Debug, PartialEq, Eq)]
pub struct CoreIdentity {
    /// This process.
    pub identity: String,
    /// The last process on this directory, which is dead.
    pub predecessor: Option<String>,
}

/// An opened data directory. Nobody else works in it while this value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if needed and locks it.
    ///
    /// # Errors
    /// The directory cannot be created, or another process works in it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        create_private_dir(path)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("data directory {} cannot be resolved", path.display()))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .with_context(|| format!("lock file in {} cannot be opened", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!(
                "data directory {} is in use by another `ostler up` or `ostler reset`; end it, or choose another with --data-dir",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }

    /// The absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kubeconfig for kubectl.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Where the core answers people.
    pub fn admin_socket(&self) -> PathBuf {
        self.path.join("admin.sock")
    }

    /// The API server's own directory.
    pub fn api(&self) -> PathBuf {
        self.path.join("api")
    }

    /// The directory of one driver.
    pub fn driver(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.path.join("drivers").join(name);
        create_private_dir(&dir)?;
        Ok(dir)
    }

    /// The token file of one driver, minted if it is not there yet.
    pub fn driver_token(&self, name: &str) -> anyhow::Result<PathBuf> {
        let file = self.driver(name)?.join("token");
        if !file.exists() {
            let token: String =
                rand::rng().sample_iter(Alphanumeric).take(TOKEN_LENGTH).map(char::from).collect();
            write_private(&file, &token)?;
        }
        Ok(file)
    }

    /// A new name for the core, and the name of the last one here. Whoever holds the lock knows that the last one is dead.
    pub fn core_identity(&self) -> anyhow::Result<CoreIdentity> {
        let file = self.path.join("core-identity");
        let predecessor = match fs::read_to_string(&file) {
            Ok(identity) => {
                Some(identity.trim().to_owned()).filter(|identity| !identity.is_empty())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("{} cannot be read", file.display()));
            }
        };
        let identity = format!("ostler-up_{}", uuid::Uuid::new_v4());
        write_private(&file, &identity)?;
        Ok(CoreIdentity { identity, predecessor })
    }

    /// The drivers that were ever started here: machines of each may be left.
    pub fn known_drivers(&self) -> anyhow::Result<Vec<DriverChoice>> {
        let file = self.drivers_file();
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is not what `ostler up` wrote", file.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
    }

    /// Remembers drivers for [`Self::known_drivers`].
    pub fn remember_drivers(&self, drivers: &[DriverChoice]) -> anyhow::Result<()> {
        let mut known = self.known_drivers()?;
        known.extend_from_slice(drivers);
        known.retain(|driver| *driver != DriverChoice::None);
        known.sort();
        known.dedup();
        write_private(&self.drivers_file(), &serde_json::to_string_pretty(&known)?)
    }

    fn drivers_file(&self) -> PathBuf {
        self.path.join("drivers.json")
    }

    /// Removes the directory and all that is in it.
    pub fn remove(self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.path)
            .with_context(|| format!("{} cannot be removed", self.path.display()))
    }
}

fn create_private_dir(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("directory {} cannot be created", path.display()))
}

/// Writes a file that only this user may read, whole or not at all.
pub(crate) fn write_private(path: &Path, content: &str) -> anyhow::Result<()> {
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::DataDir;

    #[test]
    fn a_second_owner_of_a_data_directory_is_refused_and_told_why() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let refused = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("in use by another"), "{refused}");
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn a_driver_token_is_minted_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let file = data.driver_token("fake").unwrap();
        let token = std::fs::read_to_string(&file).unwrap();
        assert_eq!(token.len(), super::TOKEN_LENGTH);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        data.driver_token("fake").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
    }

    #[test]
    fn each_core_has_a_name_of_its_own_and_knows_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap().core_identity().unwrap();
        let second = DataDir::open(dir.path()).unwrap().core_identity().unwrap();
        assert_eq!(first.predecessor, None);
        assert_ne!(first.identity, second.identity);
        assert_eq!(second.predecessor, Some(first.identity));
    }
}
