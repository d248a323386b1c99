//! Secrets, and the files they live in.

use std::{
    fmt,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    path::Path,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

/// Permissions of a directory that holds secrets.
const PRIVATE_DIRECTORY: u32 = 0o700;
/// Permissions of a file that holds a secret.
const PRIVATE_FILE: u32 = 0o600;

/// A text that must not appear in logs: its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// 256 random bits as text.
pub(super) fn random() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// The secret kept in `directory` under `name`, made anew if it is not there yet. Without a
/// directory it is always new.
pub(crate) fn keep(
    directory: Option<&Path>,
    name: &str,
    make: impl FnOnce() -> String,
) -> io::Result<Secret> {
    let Some(directory) = directory else { return Ok(Secret::new(make())) };
    let path = directory.join(name);
    if let Some(found) = read_private(&path)? {
        return Ok(Secret::new(found.trim().to_owned()));
    }
    let made = make();
    write_private(&path, &made)?;
    Ok(Secret::new(made))
}

/// The text of a file; none if it is missing or empty.
pub(crate) fn read_private(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file that only its owner can read, whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        private_directory(directory)?;
    }
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, PRIVATE_FILE);
    let mut file = options.open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// Creates a directory that only its owner can enter.
pub(crate) fn private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, PRIVATE_DIRECTORY);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_secret_is_the_same_the_next_time_and_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let private = directory.path().join("private");
        let first = keep(Some(&private), "key", random).unwrap();
        let second = keep(Some(&private), "key", random).unwrap();
        assert_eq!(first, second);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&private.join("key")), 0o600);
            assert_eq!(mode(&private), 0o700);
        }
    }

    #[test]
    fn a_secret_does_not_show_in_debug() {
        let secret = Secret::new("canary".to_owned());
        assert!(!format!("{secret:?}").contains("canary"));
    }
}
