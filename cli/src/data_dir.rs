//! The directory in which `ostler up` keeps everything that must outlive the process.
//!
//! ```text
//! DIR/lock                    held while an `up` or a `reset` works here
//! DIR/kubeconfig              for kubectl, 0600
//! DIR/admin.sock              where `ostler drivers` and grpcurl look into the core, 0600
//! DIR/api/                    database, keys and certificates of the API server
//! DIR/core.sock               where drivers dial in, 0600
//! DIR/core-identity           who held the leader Lease here last
//! DIR/gateway                 where containers found the API server last
//! DIR/drivers.json            the drivers that were ever started here
//! DIR/aliases.json            the names that classes ever had for providers here
//! DIR/driver-env.json         the names of the variables that drivers were ever given with --driver-env, without values
//! DIR/drivers/NAME/token      how the driver proves to the core who it is, 0600
//! DIR/drivers/NAME/processes  by what the next `up` knows the processes of this one's driver
//! DIR/drivers/NAME/…          the driver's own files
//! DIR/restored                says that this is a copy: `ostler restore` made it from a backup
//! ```
//!
//! The directory and its subdirectories belong to this user alone. Tokens, keys and the drivers that are started come from
//! here, so what another user could have put here is refused rather than used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rand::RngExt as _;
use rand::distr::Alphanumeric;
use serde::de::DeserializeOwned;

use crate::driver_choice::DriverChoice;
use crate::known::{self, ALIASES, DRIVER_ENV, DRIVERS};

/// Every entry that `up` writes here, in the order of removal. The database comes late: without it the remaining
/// instances are unknown.
const OWN: [&str; 12] = [
    "drivers",
    "kubeconfig",
    "admin.sock",
    "core.sock",
    "core-identity",
    "gateway",
    "api",
    DRIVERS,
    ALIASES,
    DRIVER_ENV,
    "restored",
    "lock",
];

/// Length of a minted token: 256 bits take 43 characters of this alphabet.
const TOKEN_LENGTH: usize = 43;

/// An opened data directory. No other process works in it while this value lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if needed and locks it. A link to it is followed if this user or root made the link.
    ///
    /// # Errors
    /// The directory cannot be created, others own it or may write to it, or another process works in it.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::try_open(path)?.with_context(|| {
            format!(
                "data directory {} is in use by another `ostler up` or `ostler reset`; end it, or choose another with --data-dir",
                path.display()
            )
        })
    }

    /// The same; `None` if another process works in it.
    pub(crate) fn try_open(path: &Path) -> anyhow::Result<Option<Self>> {
        // A slash at the end would hide the link.
        let named: PathBuf = path.components().collect();
        let link = fs::symlink_metadata(named).ok().filter(fs::Metadata::is_symlink);
        if let Some(link) = link.filter(|link| ![0, own_uid()].contains(&link.uid())) {
            bail!(
                "data directory {} is a link of user {}, who may let it lead anywhere; name the directory itself",
                path.display(),
                link.uid()
            );
        }
        make_dir(path)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("data directory {} cannot be resolved", path.display()))?;
        refuse_shared(&path)?;
        private_dir(&path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(path.join("lock"))
            .with_context(|| format!("lock file in {} cannot be opened", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }

    /// The absolute path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The kubeconfig for kubectl.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Where the core answers people.
    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.path.join("admin.sock")
    }

    /// The API server's own directory.
    pub(crate) fn api(&self) -> PathBuf {
        self.path.join("api")
    }

    /// The directory of one driver.
    pub(crate) fn driver(&self, name: &str) -> anyhow::Result<PathBuf> {
        let drivers = self.path.join("drivers");
        let dir = drivers.join(name);
        make_dir(&dir)?;
        private_dir(&drivers)?;
        private_dir(&dir)?;
        Ok(dir)
    }

    /// The names of all drivers that have a directory.
    pub(crate) fn drivers_with_files(&self) -> anyhow::Result<Vec<String>> {
        let drivers = self.path.join("drivers");
        let unreadable = || format!("{} cannot be read", drivers.display());
        let entries = match fs::read_dir(&drivers) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(unreadable),
        };
        let directories = entries.flatten().filter(|it| it.file_type().is_ok_and(|it| it.is_dir()));
        Ok(directories.filter_map(|it| it.file_name().into_string().ok()).collect())
    }

    /// The token file of one driver, minted if it is not there yet.
    pub(crate) fn driver_token(&self, name: &str) -> anyhow::Result<PathBuf> {
        let file = self.driver(name)?.join("token");
        if read_private(&file)?.is_none() {
            let token: String =
                rand::rng().sample_iter(Alphanumeric).take(TOKEN_LENGTH).map(char::from).collect();
            write_private(&file, &token)?;
        }
        Ok(file)
    }

    /// Where drivers of this computer dial in.
    pub(crate) fn core_socket(&self) -> PathBuf {
        self.path.join("core.sock")
    }

    /// The file of the last leader's identity.
    pub(crate) fn core_identity(&self) -> PathBuf {
        self.path.join("core-identity")
    }

    /// The drivers that were ever started here: machines of each may be left. Each name once, as it was started last: what has the
    /// same name has the same token and files.
    pub(crate) fn known_drivers(&self) -> anyhow::Result<Vec<DriverChoice>> {
        let known: Vec<DriverChoice> = read_known(&self.drivers_file())?;
        let by_name: BTreeMap<_, _> = known.into_iter().map(|it| (it.name(), it)).collect();
        Ok(by_name.into_values().collect())
    }

    /// Remembers drivers for [`Self::known_drivers`].
    pub(crate) fn remember_drivers(&self, drivers: &[DriverChoice]) -> anyhow::Result<()> {
        let mut known = self.known_drivers()?;
        known.retain(|it| drivers.iter().all(|driver| driver.name() != it.name()));
        known.extend(drivers.iter().filter(|it| **it != DriverChoice::None).cloned());
        write_private(&self.drivers_file(), &serde_json::to_string_pretty(&known)?)
    }

    /// Remembers aliases for [`Self::known_aliases`].
    pub(crate) fn remember_aliases(
        &self,
        aliases: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let mut known = self.known_aliases()?;
        known.extend(aliases.clone());
        write_private(&self.aliases_file(), &serde_json::to_string_pretty(&known)?)
    }

    /// The aliases that classes may have been written with.
    pub(crate) fn known_aliases(&self) -> anyhow::Result<BTreeMap<String, String>> {
        read_known(&self.aliases_file())
    }

    /// Remembers the names of variables for [`Self::known_driver_env`].
    pub(crate) fn remember_driver_env(&self, names: &[String]) -> anyhow::Result<()> {
        let mut known = self.known_driver_env()?;
        known.extend(names.iter().filter(|name| std::env::var_os(name).is_some()).cloned());
        write_private(&self.driver_env_file(), &serde_json::to_string_pretty(&known)?)
    }

    /// Variables that drivers were ever given here beyond the usual ones: they may say which cloud the machines are in.
    pub(crate) fn known_driver_env(&self) -> anyhow::Result<BTreeSet<String>> {
        read_known(&self.driver_env_file())
    }

    fn driver_env_file(&self) -> PathBuf {
        self.path.join(DRIVER_ENV)
    }

    fn aliases_file(&self) -> PathBuf {
        self.path.join(ALIASES)
    }

    fn drivers_file(&self) -> PathBuf {
        self.path.join(DRIVERS)
    }

    /// The note that a restore leaves.
    pub(crate) fn restored(&self) -> PathBuf {
        self.path.join("restored")
    }

    /// Removes the entries of this program, then the directory. Returns the names of foreign files, which stay.
    pub(crate) fn remove(self) -> anyhow::Result<Vec<String>> {
        let unremovable = |path: &Path| format!("{} cannot be removed", path.display());
        for own in OWN.map(|name| self.path.join(name)) {
            // A write that was cut off leaves a `.part` file.
            for path in [own.with_extension("part"), own] {
                let removed = match fs::symlink_metadata(&path) {
                    Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
                    Ok(_) => fs::remove_file(&path),
                    Err(_) => continue,
                };
                removed.with_context(|| unremovable(&path))?;
            }
        }
        let entries = fs::read_dir(&self.path).with_context(|| unremovable(&self.path))?;
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        let left: Vec<_> =
            entries.map(name).collect::<Result<_, _>>().with_context(|| unremovable(&self.path))?;
        if left.is_empty() {
            fs::remove_dir(&self.path).with_context(|| unremovable(&self.path))?;
        }
        Ok(left)
    }
}

/// The content of a file that an earlier `ostler up` wrote; the default if the file is missing.
fn read_known<T: DeserializeOwned + Default>(file: &Path) -> anyhow::Result<T> {
    read_private(file)?.map_or_else(|| Ok(T::default()), |text| known::parse(file, &text))
}

/// The user that files must be of.
pub(crate) fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn make_dir(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("directory {} cannot be created", path.display()))
}

/// Refuses a directory of another program that other users may read: making it private would lock them out.
fn refuse_shared(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let unusable = || format!("directory {shown} cannot be used");
    let mode = fs::metadata(path).with_context(unusable)?.mode() & 0o777;
    let used = fs::read_dir(path).with_context(unusable)?.next().is_some();
    if mode & 0o077 != 0 && used && !path.join("lock").exists() {
        bail!(
            "directory {shown} has mode {mode:04o} and other files, and would be closed to other users; choose another with --data-dir, or close it with `chmod go= {shown}`"
        );
    }
    Ok(())
}

/// Checks that this user owns the directory and no other user may write to it; then makes it unreadable for other users.
///
/// Earlier versions took directories that others may read. Other rights do not make
/// safe what others may have written.
fn private_dir(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let unusable = || format!("directory {shown} cannot be used");
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW)
        .open(path)
        .with_context(unusable)?;
    let found = directory.metadata().with_context(unusable)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    if owner != own_uid() {
        bail!(
            "directory {shown} belongs to user {owner}, who could put keys and drivers there; choose another with --data-dir, or make it yours with `chown {} {shown}`",
            own_uid()
        );
    }
    if mode & 0o022 != 0 {
        bail!(
            "directory {shown} has mode {mode:04o}: others may write to it, and what is in it may be theirs; see that it is not, then `chmod go-w {shown}`"
        );
    }
    if mode & 0o077 != 0 {
        directory
            .set_permissions(fs::Permissions::from_mode(mode & 0o700))
            .with_context(unusable)?;
    }
    Ok(())
}

/// The content that [`write_private`] wrote; `None` if there is no such file.
///
/// # Errors
/// The file cannot be read, is not a file, belongs to another user, or is open to other users.
pub(crate) fn read_private(path: &Path) -> anyhow::Result<Option<String>> {
    let shown = path.display();
    let unreadable = || format!("{shown} cannot be read");
    let opened = OpenOptions::new()
        .read(true)
        // Follows no link and waits for no pipe.
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(unreadable),
    };
    let found = file.metadata().with_context(unreadable)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    if !found.is_file() || owner != own_uid() || mode & 0o077 != 0 {
        bail!(
            "{shown} is not a file of this user alone (user {owner}, mode {mode:04o}); if you put it there, `chown {} {shown}` and `chmod 600 {shown}`, else remove it",
            own_uid()
        );
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(unreadable)?;
    Ok(Some(text))
}

/// Writes a file that only this user may read, whole or not at all. What stood in its place, a link among it, is replaced and
/// never written through. A file that has this content already stays as it is: a full disk allows no more.
pub(crate) fn write_private(path: &Path, content: &str) -> anyhow::Result<()> {
    if read_private(path).is_ok_and(|found| found.as_deref() == Some(content)) {
        return Ok(());
    }
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        // Removes the part of a write that was cut off, without opening whatever lies there.
        match fs::remove_file(&part) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&part)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
    use std::path::Path;

    use super::{DataDir, DriverChoice, own_uid, read_private, write_private};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

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
    fn a_driver_that_was_moved_is_remembered_where_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let at = |path: &str| DriverChoice::Path { provider: None, path: path.into() };
        data.remember_drivers(&[at("/v1/mine"), DriverChoice::Fake]).unwrap();
        data.remember_drivers(&[at("/v2/mine"), DriverChoice::None]).unwrap();
        assert_eq!(data.known_drivers().unwrap(), [DriverChoice::Fake, at("/v2/mine")]);
    }

    #[test]
    fn a_file_that_has_its_text_already_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("drivers.json");
        let written = |text: &str| {
            write_private(&file, text).unwrap();
            fs::metadata(&file).unwrap().ino()
        };
        let first = written("[]");
        assert_eq!(written("[]"), first, "a full disk is no reason not to start");
        assert_ne!(written("[1]"), first);
    }

    #[test]
    fn a_directory_that_others_use_is_not_closed_to_them() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o755);
        fs::write(dir.path().join("index.html"), "theirs").unwrap();
        let refused = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("0755") && refused.contains("chmod go="), "{refused}");
        assert_eq!(mode(dir.path()), 0o755);
        // The lock of an earlier version.
        fs::write(dir.path().join("lock"), "").unwrap();
        DataDir::open(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused_and_one_that_they_may_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        for open in [0o777, 0o775, 0o702, 0o1777] {
            set_mode(dir.path(), open);
            let refused = DataDir::open(dir.path()).unwrap_err().to_string();
            assert!(
                refused.contains("chmod go-w") && refused.contains("others may write"),
                "{refused}"
            );
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
        }
        for readable in [0o755, 0o750, 0o711] {
            set_mode(dir.path(), readable);
            DataDir::open(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), 0o700);
        }
        let data = DataDir::open(dir.path()).unwrap();
        let driver = data.driver("fake").unwrap();
        for inner in [driver.as_path(), &dir.path().join("drivers")] {
            set_mode(inner, 0o777);
            assert!(data.driver("fake").is_err(), "{}", inner.display());
            set_mode(inner, 0o700);
        }
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        if own_uid() != 0 {
            // Only root gives directories away.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        chown(dir.path(), Some(65534), None).unwrap();
        let refused = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
    }

    #[test]
    fn a_link_to_the_directory_is_followed_unless_somebody_else_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &link).unwrap();
        let data = DataDir::open(&link).unwrap();
        assert_eq!(data.path(), target.canonicalize().unwrap());
        drop(data);
        if own_uid() == 0 {
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            for name in ["link", "link/", "link/."] {
                let refused = DataDir::open(&dir.path().join(name)).unwrap_err().to_string();
                assert!(refused.contains("link of user 65534"), "{name}: {refused}");
            }
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_that_was_planted() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "theirs").unwrap();
        set_mode(&victim, 0o644);
        for planted in ["kubeconfig.part", "kubeconfig"] {
            symlink(&victim, dir.path().join(planted)).unwrap();
        }
        let kubeconfig = dir.path().join("kubeconfig");
        write_private(&kubeconfig, "secret").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), "secret");
        assert!(!kubeconfig.is_symlink() && mode(&kubeconfig) == 0o600);
        symlink(&victim, dir.path().join("lock")).unwrap();
        assert!(DataDir::open(dir.path()).is_err(), "the lock is a link");
    }

    #[test]
    fn only_what_was_written_here_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        for (theirs, left) in [(true, vec!["thesis.txt"]), (false, vec![])] {
            let data = DataDir::open(&path).unwrap();
            data.driver_token("fake").unwrap();
            fs::create_dir(data.api()).unwrap();
            fs::write(data.path().join("gateway.part"), "cut off").unwrap();
            if theirs {
                fs::write(data.path().join("thesis.txt"), "theirs").unwrap();
            } else {
                fs::remove_file(data.path().join("thesis.txt")).unwrap();
            }
            assert_eq!(data.remove().unwrap(), left);
            assert_eq!(path.exists(), theirs);
        }
    }

    #[test]
    fn a_token_that_somebody_else_could_have_put_there_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let file = data.driver("fake").unwrap().join("token");
        fs::write(&file, "planted").unwrap();
        for open in [0o666, 0o660, 0o644] {
            set_mode(&file, open);
            let refused = data.driver_token("fake").unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{refused}");
        }
        set_mode(&file, 0o600);
        data.driver_token("fake").unwrap();
        assert_eq!(read_private(&file).unwrap().as_deref(), Some("planted"));
        let link = dir.path().join("drivers.json");
        symlink(&file, &link).unwrap();
        assert!(data.known_drivers().is_err(), "a link is not read");
    }
}
