//! Paths of sockets, however long they are.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

/// The kernel takes so many bytes as the path of a socket.
pub const LONGEST_PATH: usize = 107;

/// A path that the kernel takes for the socket at another, longer one. It leads there for as long as this value lives.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl ShortPath {
    /// The path itself if it is short; else one through the open directory of the socket.
    ///
    /// # Errors
    /// The directory cannot be opened, or the name of the socket alone is too long.
    pub fn to(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let through = through(path)?.filter(|(short, _)| short.as_os_str().len() <= LONGEST_PATH);
        let (path, directory) = through.ok_or_else(|| {
            let problem = format!(
                "a path of {} bytes is too long for a socket, which takes {LONGEST_PATH}",
                path.as_os_str().len()
            );
            io::Error::new(io::ErrorKind::InvalidFilename, problem)
        })?;
        Ok(Self { path, _directory: Some(directory) })
    }
}

impl AsRef<Path> for ShortPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[cfg(target_os = "linux")]
fn through(path: &Path) -> io::Result<Option<(PathBuf, File)>> {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = nix::libc::O_PATH | nix::libc::O_DIRECTORY;
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(parent)?;
    let open = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    Ok(Some((open.join(name), directory)))
}

/// Open directories have no paths here.
#[cfg(not(target_os = "linux"))]
fn through(_: &Path) -> io::Result<Option<(PathBuf, File)>> {
    Ok(None)
}

/// Connects to the socket at `path`.
///
/// # Errors
/// Nobody listens there.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::to(path)?;
    UnixStream::connect(&short).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_in_a_directory_with_a_long_path_is_made_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(60)).join("e".repeat(60));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("admin.sock");
        let short = ShortPath::to(&path).unwrap();
        let _listener = UnixListener::bind(&short).unwrap();
        assert!(path.exists());
        connect(&path).await.unwrap();
    }

    #[test]
    fn a_name_that_is_too_long_by_itself_is_refused_with_both_lengths() {
        let path = Path::new("/tmp").join("n".repeat(120));
        let refused = ShortPath::to(&path).unwrap_err().to_string();
        assert!(refused.contains("125 bytes") && refused.contains("107"), "{refused}");
    }
}
