//! Unix sockets: made so that only the users meant can connect, and removed when done.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_local::ShortPath;
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// How often it is looked whether the file of a socket is still there: a program that cleans up removes it without a word.
const LOOK: Duration = Duration::from_secs(2);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum UnixError {
    /// The directory of the socket cannot be used.
    #[error("the directory {} cannot hold a socket: {problem}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The problem, and what to do.
        problem: &'static str,
    },
    /// There is a file of this name that is not a socket.
    #[error("{} is there already and is no socket; remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens there.
    #[error("another process listens on {}; end it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// The file cannot be made or looked at.
    #[error("{} cannot be used as a socket", path.display())]
    File {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The file of a listening socket. Removed on drop, unless another file is in its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Changes when the socket is made again.
    inode: Mutex<Inode>,
}

type Inode = (u64, u64);

impl SocketFile {
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|file| inode(&file) == *self.inode.lock())
    }

    /// Immediately, and not only when the accept loop has ended.
    pub(super) fn remove(&self) {
        if self.is_there() {
            // The next start removes a stale one too.
            let _left_behind = fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A listening socket, whose file is made again if another program removes it.
#[derive(Debug)]
pub(super) struct Bound {
    listener: UnixListener,
    file: Arc<SocketFile>,
    mode: u32,
    /// Whether the failure to make the socket again was logged.
    said: bool,
}

impl Bound {
    pub(super) fn file(&self) -> Arc<SocketFile> {
        Arc::clone(&self.file)
    }

    /// The next connection.
    pub(super) async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            match tokio::time::timeout(LOOK, self.listener.accept()).await {
                Ok(accepted) => return accepted.map(|(stream, _)| stream),
                Err(_) => self.look().await,
            }
        }
    }

    async fn look(&mut self) {
        if self.file.is_there() {
            return;
        }
        match listen(&self.file.path, self.mode).await {
            Ok((listener, inode)) => {
                self.listener = listener;
                *self.file.inode.lock() = inode;
                self.said = false;
                tracing::warn!(socket = %self.file.path.display(), "a socket was removed, and is made again");
            }
            Err(error) if !self.said => {
                self.said = true;
                tracing::warn!(%error, "a socket was removed, and cannot be made again yet");
            }
            Err(_) => {}
        }
    }
}

/// Listens on `path`. A socket without a listener is replaced.
pub(super) async fn bind(path: &Path, mode: u32) -> Result<Bound, UnixError> {
    let (listener, inode) = listen(path, mode).await?;
    let file = SocketFile { path: path.to_owned(), inode: Mutex::new(inode) };
    Ok(Bound { listener, file: Arc::new(file), mode, said: false })
}

async fn listen(path: &Path, mode: u32) -> Result<(UnixListener, Inode), UnixError> {
    make_directory(path, mode);
    check_directory(path)?;
    remove_stale(path).await?;
    let listen = || -> io::Result<_> {
        let socket = UnixSocket::new_stream()?;
        let short = ShortPath::to(path)?;
        socket.bind(&short)?;
        // Before it listens, no process can connect: there is no moment with wider permissions.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        let made = inode(&fs::symlink_metadata(path)?);
        Ok((socket.listen(BACKLOG)?, made))
    };
    listen().map_err(|source| failed(path, source))
}

/// A volume that a pod shares may be written to by everybody: a directory in it that is ours may not. The socket's
/// group may enter if it may use the socket. A missing directory is found right after.
fn make_directory(path: &Path, socket: u32) {
    if let Some(directory) = path.parent() {
        let mode = if socket & 0o060 == 0 { 0o700 } else { 0o750 };
        let _there_already = DirBuilder::new().mode(mode).create(directory);
    }
}

fn check_directory(path: &Path) -> Result<(), UnixError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let refused = |problem| Err(UnixError::Directory { path: directory.to_owned(), problem });
    let Ok(metadata) = fs::metadata(directory) else {
        return refused("it is not there, or must not be looked into; make it first");
    };
    if !metadata.is_dir() {
        return refused("it is no directory");
    }
    let (mode, sticky) = (metadata.mode(), 0o1000);
    if mode & 0o002 != 0 && mode & sticky == 0 {
        return refused("every user may write there and could replace the socket; chmod o-w");
    }
    Ok(())
}

async fn remove_stale(path: &Path) -> Result<(), UnixError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(path, source)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(UnixError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match ostler_local::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| failed(path, source))
        }
        Ok(_) => Err(UnixError::InUse(path.to_owned())),
        Err(source) => Err(failed(path, source)),
    }
}

fn failed(path: &Path, source: io::Error) -> UnixError {
    UnixError::File { path: path.to_owned(), source }
}

fn inode(file: &Metadata) -> Inode {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_has_the_permissions_that_were_asked_for_and_goes_with_its_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core.sock");
        for wanted in [0o600, 0o660] {
            let listening = bind(&path, wanted).await.unwrap();
            assert_eq!(mode(&path), wanted);
            drop(listening);
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let _listening = bind(&path, 0o600).await.unwrap();
        assert!(matches!(bind(&path, 0o600).await, Err(UnixError::InUse(_))));
        UnixStream::connect(&path).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(bind(&path, 0o600).await, Err(UnixError::NotASocket(_))));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(bind(&link, 0o600).await, Err(UnixError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[tokio::test]
    async fn a_socket_of_somebody_else_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core.sock");
        let mut bound = bind(&path, 0o600).await.unwrap();
        fs::remove_file(&path).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        bound.look().await;
        drop(bound);
        assert!(path.exists());
        drop(other);
    }

    #[tokio::test]
    async fn a_socket_that_somebody_removed_is_made_again_with_its_directory_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core").join("core.sock");
        let mut bound = bind(&path, 0o660).await.unwrap();
        for all in [false, true] {
            if all {
                fs::remove_dir_all(path.parent().unwrap()).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            let dialed = async {
                while UnixStream::connect(&path).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let both = async { tokio::join!(bound.accept(), dialed) };
            let (accepted, ()) = tokio::time::timeout(Duration::from_mins(1), both).await.unwrap();
            accepted.unwrap();
            assert_eq!(mode(&path), 0o660);
        }
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_is_listened_on_however_long_its_path_is() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("core.sock");
        let mut bound = bind(&path, 0o600).await.unwrap();
        assert!(matches!(bind(&path, 0o600).await, Err(UnixError::InUse(_))));
        ostler_local::connect(&path).await.unwrap();
        bound.accept().await.unwrap();
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_directory_that_is_missing_is_made_for_those_who_may_use_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        for (name, socket, directory) in [("own", 0o600, 0o700), ("group", 0o660, 0o750)] {
            let path = dir.path().join(name).join("core.sock");
            let _listening = bind(&path, socket).await.unwrap();
            assert_eq!(mode(path.parent().unwrap()), directory);
        }
    }

    #[tokio::test]
    async fn a_directory_that_everybody_may_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = bind(&dir.path().join("core.sock"), 0o600).await.unwrap_err().to_string();
        assert!(refused.contains("chmod o-w"), "{refused}");
        let nowhere = bind(Path::new("/nowhere/at/all.sock"), 0o600).await.unwrap_err().to_string();
        assert!(nowhere.contains("/nowhere"), "{nowhere}");
    }
}
