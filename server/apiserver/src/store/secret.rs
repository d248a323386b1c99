//! Secrets, and the files they live in.

use std::{
    fmt,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::Path,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

/// Permissions of a directory that holds secrets.
const PRIVATE_DIRECTORY: u32 = 0o700;
/// Permissions of a file that holds a secret.
const PRIVATE_FILE: u32 = 0o600;

/// A text that must not appear in logs: `Debug` hides it.
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
pub(crate) fn random() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// The least characters of a kept secret: 128 random bits take 22 in base64.
const LEAST: usize = 22;

/// The secret kept in `directory` under `name`, made anew if it is not there yet. Without a
/// directory it is always new.
///
/// # Errors
/// The file is not ours alone, or what it holds can be guessed.
pub(crate) fn keep(
    directory: Option<&Path>,
    name: &str,
    make: impl FnOnce() -> String,
) -> io::Result<Secret> {
    let Some(directory) = directory else { return Ok(Secret::new(make())) };
    let path = directory.join(name);
    if let Some(found) = read_private(&path)? {
        return accept(&path, &found);
    }
    let made = make();
    write_private(&path, &made)?;
    Ok(Secret::new(made))
}

/// The secret that the file at `path` holds as `text`.
///
/// # Errors
/// It can be guessed, or cannot be sent.
pub(crate) fn accept(path: &Path, text: &str) -> io::Result<Secret> {
    let found = text.trim();
    if found.len() < LEAST {
        let length = found.len();
        let why = format!(
            "holds a secret of {length} characters, and fewer than {LEAST} can be guessed; remove it to have a new one made"
        );
        return Err(refusal(path, &why));
    }
    if !found.bytes().all(|byte| byte.is_ascii_graphic()) {
        let why = "holds characters that no secret has; remove it to have a new one made";
        return Err(refusal(path, why));
    }
    Ok(Secret::new(found.to_owned()))
}

/// The text of a file that holds a secret; none if it is missing.
///
/// # Errors
/// It is empty, is no plain file, belongs to another user, or others can read or write it: the
/// text names it, and says what to do.
pub(crate) fn read_private(path: &Path) -> io::Result<Option<String>> {
    if !check_private_file(path)? {
        return Ok(None);
    }
    let text = fs::read_to_string(path)?;
    if text.trim().is_empty() {
        return Err(refusal(path, "is empty; remove it to have a new one made"));
    }
    Ok(Some(text))
}

/// Whether there is a file at `path`, and whether it is ours alone.
///
/// # Errors
/// It is no plain file, belongs to another user, or others can read or write it.
pub(crate) fn check_private_file(path: &Path) -> io::Result<bool> {
    let Some(found) = look_at_own_file(path)? else { return Ok(false) };
    check_mode(path, &found, 0o077, "can be read or written by others", "600")?;
    Ok(true)
}

/// The same for a file whose mode is set right when it is opened: how long it is, if it is there.
pub(crate) fn check_own_file(path: &Path) -> io::Result<Option<u64>> {
    let Some(found) = look_at_own_file(path)? else { return Ok(None) };
    check_mode(path, &found, 0o022, "can be written by others", "600")?;
    Ok(Some(found.len()))
}

fn look_at_own_file(path: &Path) -> io::Result<Option<fs::Metadata>> {
    let Some(found) = look(path)? else { return Ok(None) };
    if !found.is_file() {
        return Err(refusal(path, "is no plain file, and links are not followed; remove it"));
    }
    check_owner(path, &found)?;
    Ok(Some(found))
}

/// Writes a file that only its owner can read, whole or not at all. Its directory is made if it is
/// missing, and is checked as [`private_directory`] does.
///
/// # Errors
/// The directory is not ours alone, or the operating system refuses.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|one| !one.as_os_str().is_empty()) {
        private_directory(directory)?;
    }
    let temporary = path.with_extension("new");
    // what a process left that was killed, or a link that another user put there: neither is written to
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) | Ok(()) => {}
    }
    let written = create_private(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| sync_name(path));
    if written.is_err() {
        // the error is reported already, whatever happens to the temporary file
        fs::remove_file(&temporary).ok();
    }
    written
}

/// Makes the name of a file survive a power cut: what is in it is no safer than that.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|one| !one.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Creates a file that only the owner can read.
///
/// # Errors
/// There is something of this name, be it a link (`O_EXCL` follows none).
pub(crate) fn create_private(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// Creates a private directory, or checks an existing one: a user who can write the directory can put files in the
/// place of ours.
///
/// # Errors
/// It is a link or no directory, belongs to another user, or others can write it: the text names
/// it, and says what to do.
pub(crate) fn private_directory(path: &Path) -> io::Result<()> {
    if look(path)?.is_none() {
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path)?;
    }
    // also what was just made: another process may have been faster
    let Some(found) = look(path)? else { return Err(io::ErrorKind::NotFound.into()) };
    if !found.is_dir() {
        return Err(refusal(
            path,
            "is no directory, or a link to one, and links are not followed; name the directory \
             itself",
        ));
    }
    check_owner(path, &found)?;
    check_mode(path, &found, 0o022, "can be written by others", "700")
}

/// The metadata of `path`, without following links.
fn look(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_owner(path: &Path, found: &fs::Metadata) -> io::Result<()> {
    let (owner, own) = (found.uid(), nix::unistd::geteuid().as_raw());
    if owner == own {
        return Ok(());
    }
    Err(refusal(
        path,
        &format!(
            "belongs to user {owner}, and this is user {own}; give it to this user after a look \
             at what is in it, or choose another"
        ),
    ))
}

fn check_mode(
    path: &Path,
    found: &fs::Metadata,
    forbidden: u32,
    what: &str,
    wanted: &str,
) -> io::Result<()> {
    let mode = found.permissions().mode() & 0o7777;
    if mode & forbidden == 0 {
        return Ok(());
    }
    let text = format!(
        "{what} (mode {mode:03o}); `chmod {wanted}` it after a look at what is in it, or choose \
         another"
    );
    Err(refusal(path, &text))
}

fn refusal(path: &Path, why: &str) -> io::Error {
    let text = format!("{} {why}", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
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
    fn a_secret_that_can_be_guessed_or_was_lost_is_refused_by_its_file() {
        let directory = tempfile::tempdir().unwrap();
        for (text, why) in [("ab", "2 characters"), ("", "is empty"), ("  \n", "is empty")] {
            write_private(&directory.path().join("admin-token"), text).unwrap();
            let refused = keep(Some(directory.path()), "admin-token", random).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains("admin-token") && refused.contains(why), "{refused}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_others_can_write_or_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        private_directory(&at("good")).unwrap();
        private_directory(&at("good")).unwrap();
        symlink(at("good"), at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        for mode in [0o777, 0o770, 0o702, 0o1777] {
            let open = at(&format!("open-{mode:o}"));
            fs::create_dir(&open).unwrap();
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            let refused = private_directory(&open).unwrap_err().to_string();
            assert!(refused.contains("can be written by others"), "{refused}");
            let refused = write_private(&open.join("x"), "x").unwrap_err().to_string();
            assert!(refused.contains(&format!("{mode:03o}")), "{refused}");
        }
        for name in ["link", "file"] {
            let refused = private_directory(&at(name)).unwrap_err().to_string();
            assert!(refused.contains("is no directory"), "{refused}");
        }
        let readable = at("readable");
        fs::create_dir(&readable).unwrap();
        fs::set_permissions(&readable, fs::Permissions::from_mode(0o755)).unwrap();
        private_directory(&readable).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn planted_files_and_links_are_neither_read_nor_written_through() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("victim"), "before").unwrap();
        // what an earlier version wrote through
        symlink(at("victim"), at("token.new")).unwrap();
        symlink(at("victim"), at("token")).unwrap();
        assert!(create_private(&at("token.new")).is_err(), "a link is not followed");
        assert!(keep(Some(root.path()), "token", random).is_err(), "a link is not read");
        write_private(&at("token"), "secret").unwrap();
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "before");
        assert!(fs::symlink_metadata(at("token")).unwrap().is_file());

        let planted = at("planted");
        fs::write(&planted, "x".repeat(43)).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
        let refused = keep(Some(root.path()), "planted", random).unwrap_err().to_string();
        assert!(refused.contains("planted") && refused.contains("chmod 600"), "{refused}");
        if nix::unistd::geteuid().is_root() {
            let other = Some(65534);
            fs::set_permissions(&planted, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&planted, other, None).unwrap();
            let refused = keep(Some(root.path()), "planted", random).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
            let theirs = at("theirs");
            fs::create_dir(&theirs).unwrap();
            std::os::unix::fs::chown(&theirs, other, None).unwrap();
            let refused = private_directory(&theirs).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
        }
    }

    #[test]
    fn a_secret_does_not_show_in_debug() {
        let secret = Secret::new("canary".to_owned());
        assert!(!format!("{secret:?}").contains("canary"));
    }
}
