//! Who listens on this host: secrets are shown to nobody else than whom the kernel names.
//!
//! A port, and a socket in a directory of several users, belongs to whoever was first there, e.g. while the core was down.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::sleep;

/// Between two looks whether a listener has taken the connection; before that, it has no owner.
const LOOK: Duration = Duration::from_millis(5);
/// The TCP connections of this network namespace, one a line.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// The users whose processes may be at the other end on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trusted {
    /// Any user, since TLS says who it is, or the operator does.
    AnyUser,
    /// This process's own user, and who alone can put a socket there; and root.
    Own(u32),
    /// The given user; and root.
    Given(u32),
}

/// Why what listens there is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum NotTrusted {
    /// Another user listens.
    #[error(
        "a process of user {uid} listens there, and not one of user {expected}: nothing is shown to it. If the core runs as \
         user {uid}, say so by --core-uid {uid} (OSTLER_CORE_UID)"
    )]
    Other {
        /// The user.
        uid: u32,
        /// Who should.
        expected: u32,
    },
    /// The listening user cannot be found out.
    #[error(
        "it cannot be told which user listens there ({0}): use unix:PATH or https, or --allow-plaintext (OSTLER_ALLOW_PLAINTEXT) \
         if no other user of this host could"
    )]
    Unknown(#[source] io::Error),
}

impl Trusted {
    fn check(self, uid: u32, directory: Option<u32>) -> Result<(), NotTrusted> {
        let (expected, trusted) = match self {
            Self::AnyUser => return Ok(()),
            Self::Own(own) => (own, uid == own || Some(uid) == directory),
            Self::Given(given) => (given, uid == given),
        };
        if trusted || uid == 0 { Ok(()) } else { Err(NotTrusted::Other { uid, expected }) }
    }

    /// Checks who listens on the socket at `path`: also the owner of its directory may, if no other user can put a socket there.
    pub(crate) fn check_unix(self, path: &Path, stream: &UnixStream) -> Result<(), NotTrusted> {
        let uid = stream.peer_cred().map_err(NotTrusted::Unknown)?.uid();
        let directory = path.parent().and_then(|it| std::fs::metadata(it).ok());
        let closed = directory.filter(|it| it.mode() & 0o022 == 0);
        self.check(uid, closed.map(|it| it.uid()))
    }

    /// Checks who has the other end of a connection over loopback.
    pub(crate) async fn check_tcp(self, stream: &TcpStream) -> Result<(), NotTrusted> {
        if self == Self::AnyUser {
            return Ok(());
        }
        let ends = (|| Ok((stream.peer_addr()?, stream.local_addr()?)))();
        let (peer, own) = ends.map_err(NotTrusted::Unknown)?;
        // The limit of the connection ends this.
        loop {
            match owner(peer, own).await.map_err(NotTrusted::Unknown)? {
                Some(uid) => return self.check(uid, None),
                None => sleep(LOOK).await,
            }
        }
    }
}

/// Who has the socket at `peer` that is connected to `own`; `None`: no process has it yet.
async fn owner(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
    let mut failed = None;
    for table in TABLES {
        let text = match tokio::fs::read_to_string(table).await {
            Ok(text) => text,
            Err(error) => {
                failed = Some(error);
                continue;
            }
        };
        if let Some((uid, inode)) = text.lines().find_map(|line| row(line, peer, own)) {
            return Ok((inode != "0").then_some(uid));
        }
    }
    let none =
        || io::Error::new(io::ErrorKind::NotFound, "the kernel does not list the connection");
    Err(failed.unwrap_or_else(none))
}

/// Owner and inode, if this is the line of the socket at `local` that is connected to `remote`.
fn row(line: &str, local: SocketAddr, remote: SocketAddr) -> Option<(u32, &str)> {
    let mut words = line.split_whitespace().skip(1);
    let (at, to) = (words.next()?, words.next()?);
    let mapped = |it: SocketAddr| match it.ip() {
        IpAddr::V4(ip) => shown(ip.to_ipv6_mapped().into(), it.port()),
        IpAddr::V6(_) => String::new(),
    };
    let same = at == shown(local.ip(), local.port()) && to == shown(remote.ip(), remote.port());
    if !same && (at != mapped(local) || to != mapped(remote)) {
        return None;
    }
    let uid = words.nth(4)?.parse().ok()?;
    Some((uid, words.nth(1)?))
}

/// An address as the kernel writes it: words in the order of this machine.
fn shown(ip: IpAddr, port: u16) -> String {
    let words = |bytes: &[u8]| -> String {
        let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
        words.map(|word| format!("{word:08X}")).collect::<Vec<_>>().concat()
    };
    match ip {
        IpAddr::V4(ip) => format!("{}:{port:04X}", words(&ip.octets())),
        IpAddr::V6(ip) => format!("{}:{port:04X}", words(&Ipv6Addr::octets(&ip))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, UnixListener};

    use super::*;

    fn me() -> u32 {
        std::fs::metadata("/proc/self").unwrap().uid()
    }

    #[tokio::test]
    async fn the_kernel_says_who_has_the_other_end_once_it_was_accepted() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address).await else { continue };
            let port = listener.local_addr().unwrap().port();
            let dialled = if address.starts_with("[::1") { "::1" } else { "127.0.0.1" };
            let stream = TcpStream::connect((dialled, port)).await.unwrap();
            let ends = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
            assert_eq!(owner(ends.0, ends.1).await.unwrap(), None, "{address}");
            let _accepted = listener.accept().await.unwrap();
            assert_eq!(owner(ends.0, ends.1).await.unwrap(), Some(me()), "{address}");
            Trusted::Own(me()).check_tcp(&stream).await.unwrap();
        }
    }

    #[tokio::test]
    async fn another_user_is_not_trusted_unless_it_was_named_or_has_the_directory_alone() {
        let (own, given) = (Trusted::Own(4711), Trusted::Given(4712));
        let refused = own.check(4712, None).unwrap_err().to_string();
        assert!(refused.contains("user 4712") && refused.contains("--core-uid 4712"), "{refused}");
        for uid in [0, 4711] {
            own.check(uid, None).unwrap();
        }
        own.check(4712, Some(4712)).unwrap();
        given.check(4712, None).unwrap();
        // The given user counts alone.
        given.check(4711, Some(4711)).unwrap_err();
        Trusted::AnyUser.check(4713, None).unwrap();
    }

    #[tokio::test]
    async fn the_owner_of_a_directory_to_which_others_may_write_says_nothing() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = std::env::temp_dir().join(format!("ostler-dial-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("core.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).await.unwrap();
        drop(listener);
        // Tests of this kind run as root too, whom everybody trusts.
        for (mode, trusted) in [(0o700, true), (0o770, me() == 0), (0o777, me() == 0)] {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            let checked = Trusted::Own(me() + 1).check_unix(&path, &stream);
            assert_eq!(checked.is_ok(), trusted, "{mode:o}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
