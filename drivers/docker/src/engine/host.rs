//! Where an engine is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A unix socket of a Docker Engine. Engines behind TCP are not offered: a client that reaches such a port
/// is root of the host, and a socket has an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerHost(PathBuf);

/// It names no unix socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no unix socket: write unix:///PATH, e.g. unix:///var/run/docker.sock")]
pub struct NotADockerHost(String);

impl DockerHost {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Where Docker puts it.
impl Default for DockerHost {
    fn default() -> Self {
        Self(PathBuf::from("/var/run/docker.sock"))
    }
}

impl FromStr for DockerHost {
    type Err = NotADockerHost;

    /// A variable that is set to nothing says nothing.
    fn from_str(text: &str) -> Result<Self, NotADockerHost> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let path = text.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        path.map(|path| Self(PathBuf::from(path))).ok_or_else(|| NotADockerHost(text.to_owned()))
    }
}

impl fmt::Display for DockerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_are_taken() {
        let host: DockerHost = "unix:///run/d.sock".parse().unwrap();
        assert_eq!(
            (host.path(), host.to_string().as_str()),
            (Path::new("/run/d.sock"), "unix:///run/d.sock")
        );
        for text in ["tcp://1.2.3.4:2375", "/var/run/docker.sock", "unix://docker.sock"] {
            assert!(text.parse::<DockerHost>().is_err(), "{text}");
        }
        assert_eq!("".parse(), Ok(DockerHost::default()), "a variable that is empty says nothing");
    }
}
