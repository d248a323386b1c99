//! The value of `--drivers-listen`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix {
        /// The socket file.
        path: PathBuf,
        /// Permission bits of the file: who may write may connect.
        mode: u32,
    },
}

/// Only the user of this process.
const PRIVATE: u32 = 0o600;
/// The user and the group of the file.
const GROUP: u32 = 0o660;

/// `ADDR:PORT`, `unix:PATH` or `unix:PATH,mode=0660`.
impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(rest) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "`{text}` is neither ADDR:PORT, e.g. 127.0.0.1:5000, nor unix:PATH, e.g. unix:/run/ostler/core.sock"
                )
            });
        };
        let (path, mode) = match rest.split_once(",mode=") {
            None => (rest, PRIVATE),
            Some((path, "0600")) => (path, PRIVATE),
            Some((path, "0660")) => (path, GROUP),
            Some((_, mode)) => {
                return Err(format!("`{mode}` is no mode of a socket; write 0600 or 0660"));
            }
        };
        // As gRPC libraries write it: unix:///path is the absolute /path.
        let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
        if path.file_name().is_none() {
            return Err(format!("`{text}` names no file; write e.g. unix:/run/ostler/core.sock"));
        }
        Ok(Self::Unix { path, mode })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_or_a_socket() {
        let unix = |path: &str, mode| ListenAddress::Unix { path: path.into(), mode };
        let cases = [
            ("127.0.0.1:5000", ListenAddress::Tcp(([127, 0, 0, 1], 5000).into())),
            ("[::1]:1", ListenAddress::Tcp("[::1]:1".parse().unwrap())),
            ("unix:/run/o.sock", unix("/run/o.sock", 0o600)),
            ("unix:///run/o.sock", unix("/run/o.sock", 0o600)),
            ("unix:o.sock,mode=0660", unix("o.sock", 0o660)),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_named_and_an_example_given() {
        for (text, hint) in [
            ("5000", "127.0.0.1:5000"),
            ("localhost:5000", "127.0.0.1:5000"),
            ("unix:", "core.sock"),
            ("unix:/a.sock,mode=0777", "0660"),
        ] {
            let refused = text.parse::<ListenAddress>().unwrap_err();
            assert!(refused.contains(hint), "{text}: {refused}");
        }
    }
}
