//! The listener for people: DriverDebugService, health, reflection, on a unix socket or loopback.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{Stream, StreamExt as _};
use ostler_sessions::{Caller, Principal, Providers, Sessions, StaticTokens};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tonic::service::{InterceptorLayer, Routes};
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming, UdsConnectInfo};
use tonic::{Request, Status};

/// For how long calls may take to end when the core goes.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A value of `--admin-listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// `unix:PATH`: for the user of the core and root.
    Unix(PathBuf),
    /// `127.0.0.1:PORT`: for whoever has the admin token.
    Tcp(SocketAddr),
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err("`unix:` needs a path, e.g. unix:/run/ostler/admin.sock".to_owned())
            } else {
                Ok(Self::Unix(PathBuf::from(path)))
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Tcp(address)),
            Ok(_) => Err(format!(
                "`{text}` is not on loopback: this listener changes machines and speaks no TLS; use unix:PATH or 127.0.0.1:PORT"
            )),
            Err(_) => {
                Err(format!("`{text}` is neither unix:PATH nor an address such as 127.0.0.1:5001"))
            }
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// A bound admin listener.
#[derive(Debug)]
pub struct AdminListener(Bound);

#[derive(Debug)]
enum Bound {
    Unix { listener: UnixListener, path: PathBuf, owner: u32 },
    Tcp { listener: TcpListener, token_file: PathBuf },
}

impl AdminListener {
    /// Listens. `token_file` is needed on TCP: it holds what callers must show.
    ///
    /// # Errors
    /// The address cannot be listened on, another process does, or the token file is missing.
    pub async fn bind(address: &AdminAddress, token_file: Option<&Path>) -> anyhow::Result<Self> {
        match address {
            AdminAddress::Unix(path) => Self::unix(path),
            AdminAddress::Tcp(at) => {
                let token_file = token_file.with_context(|| {
                    format!("the admin listener on {at} needs --admin-token-file; or use unix:PATH")
                })?;
                token(token_file)?;
                let listener = TcpListener::bind(at)
                    .await
                    .with_context(|| format!("the admin listener cannot listen on {at}"))?;
                Ok(Self(Bound::Tcp { listener, token_file: token_file.to_owned() }))
            }
        }
    }

    /// A socket that only its owner may connect to.
    fn unix(path: &Path) -> anyhow::Result<Self> {
        remove_stale(path)?;
        let listener = UnixListener::bind(path).with_context(|| {
            format!(
                "the admin socket {} cannot be made (a path has at most 107 bytes)",
                path.display()
            )
        })?;
        // Whoever slips in before this is refused by its user id all the same.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).with_context(
            || format!("the admin socket {} cannot be made private", path.display()),
        )?;
        let owner = std::fs::metadata(path)
            .with_context(|| format!("the admin socket {} is gone", path.display()))?
            .uid();
        Ok(Self(Bound::Unix { listener, path: path.to_owned(), owner }))
    }

    /// Serves until `end`, and then for as long as calls take to end, but not for long.
    pub(crate) async fn serve(
        self,
        routes: Routes,
        sessions: Sessions,
        end: CancellationToken,
    ) -> anyhow::Result<()> {
        match self.0 {
            Bound::Unix { listener, path, owner } => {
                let incoming = futures::stream::unfold(listener, async |listener| {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    Some((accepted, listener))
                });
                let served = serve(routes, incoming, Access::User(owner), sessions, end).await;
                // Somebody else may have removed it.
                let _gone = std::fs::remove_file(path);
                served
            }
            Bound::Tcp { listener, token_file } => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                serve(routes, incoming, Access::Token(token_file), sessions, end).await
            }
        }
    }
}

/// A socket that nobody listens on is left by a core that was killed.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        bail!("{} is there and is not a socket; choose another path", path.display());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .with_context(|| format!("the old admin socket {} cannot be removed", path.display())),
        Ok(_) | Err(_) => bail!("the admin socket {} is in use by another core", path.display()),
    }
}

async fn serve<I, IO>(
    routes: Routes,
    incoming: I,
    access: Access,
    sessions: Sessions,
    end: CancellationToken,
) -> anyhow::Result<()>
where
    I: Stream<Item = std::io::Result<IO>> + Send,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    // One connection that cannot be taken is no reason to take no other.
    let incoming = incoming.filter(|accepted| {
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection to the admin listener could not be taken");
        }
        std::future::ready(accepted.is_ok())
    });
    let server = Server::builder()
        .layer(InterceptorLayer::new(move |request| access.admit(request)))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, end.clone().cancelled_owned());
    let mut server = Box::pin(server);
    tokio::select! {
        ended = &mut server => return ended.context("the admin listener failed"),
        () = end.cancelled() => {}
    }
    // Whoever reads frames along would go on for ever.
    sessions.end_admin();
    let _late = tokio::time::timeout(END_WITHIN, server).await;
    Ok(())
}

/// Who may call.
#[derive(Clone, Debug)]
enum Access {
    /// The user with this id, and root.
    User(u32),
    /// Whoever shows the token in this file.
    Token(PathBuf),
}

impl Access {
    fn admit(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let caller = match self {
            Self::User(owner) => user(&request, *owner)?,
            Self::Token(file) => bearer(&request, file)?,
        };
        request.extensions_mut().insert(Caller(caller));
        Ok(request)
    }
}

fn user(request: &Request<()>, owner: u32) -> Result<String, Status> {
    let peer = request.extensions().get::<UdsConnectInfo>();
    let peer = peer
        .and_then(|info| info.peer_cred)
        .ok_or_else(|| Status::permission_denied("the kernel does not tell which user calls"))?;
    if peer.uid() != owner && peer.uid() != 0 {
        tracing::warn!(uid = peer.uid(), "another user called the admin listener");
        return Err(Status::permission_denied(
            "call as the user that the core runs as, or as root",
        ));
    }
    let process = peer.pid().map(|pid| format!(", process {pid}")).unwrap_or_default();
    Ok(format!("user {}{process}", peer.uid()))
}

fn bearer(request: &Request<()>, file: &Path) -> Result<String, Status> {
    let shown = request.metadata().get("authorization");
    let shown = shown.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let shown = shown.ok_or_else(|| {
        Status::unauthenticated("the call has no admin token: authorization: Bearer <token>")
    })?;
    let expected = token(file).map_err(|error| Status::unavailable(format!("{error:#}")))?;
    if expected.find(shown).is_none() {
        tracing::warn!("a wrong token was shown to the admin listener");
        return Err(Status::unauthenticated("the admin token is not that of --admin-token-file"));
    }
    let peer = request.extensions().get::<TcpConnectInfo>();
    let peer = peer.and_then(TcpConnectInfo::remote_addr);
    Ok(peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string()))
}

/// Read for every call, so that it can be changed at any time.
fn token(file: &Path) -> anyhow::Result<StaticTokens> {
    let token = std::fs::read_to_string(file)
        .with_context(|| format!("--admin-token-file {} cannot be read", file.display()))?;
    if token.trim().is_empty() {
        bail!("--admin-token-file {} is empty", file.display());
    }
    Ok(StaticTokens::new().with(&token, Principal::new("admin", Providers::Any)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_is_a_socket_or_loopback() {
        let parse = |text: &str| text.parse::<AdminAddress>();
        let socket = AdminAddress::Unix(PathBuf::from("/run/ostler/admin.sock"));
        assert_eq!(parse("unix:/run/ostler/admin.sock"), Ok(socket.clone()));
        assert_eq!(parse("unix:///run/ostler/admin.sock"), Ok(socket));
        assert_eq!(parse("127.0.0.1:5001").unwrap().to_string(), "127.0.0.1:5001");
        for (wrong, why) in
            [("0.0.0.0:5001", "loopback"), ("unix:", "needs a path"), ("here", "neither")]
        {
            let refused = parse(wrong).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_listener_on_loopback_needs_a_token_file_that_says_something() {
        let address = AdminAddress::Tcp(([127, 0, 0, 1], 0).into());
        let refused = AdminListener::bind(&address, None).await.unwrap_err().to_string();
        assert!(refused.contains("--admin-token-file"), "{refused}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = AdminListener::bind(&address, Some(file.path())).await.unwrap_err();
        assert!(refused.to_string().contains("is empty"), "{refused}");
        std::fs::write(file.path(), "s3cret\n").unwrap();
        AdminListener::bind(&address, Some(file.path())).await.unwrap();
    }

    #[tokio::test]
    async fn a_socket_is_private_and_one_that_a_dead_core_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let address = AdminAddress::Unix(path.clone());
        let listener = AdminListener::bind(&address, None).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = AdminListener::bind(&address, None).await.unwrap_err().to_string();
        assert!(refused.contains("in use"), "{refused}");
        drop(listener);
        AdminListener::bind(&address, None).await.unwrap();

        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = AdminListener::bind(&AdminAddress::Unix(file), None).await.unwrap_err();
        assert!(refused.to_string().contains("not a socket"), "{refused}");
    }

    #[test]
    fn a_token_counts_as_it_is_in_the_file_now() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ask = |token: &str| {
            let mut request = Request::new(());
            let header = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", header);
            Access::Token(file.path().to_owned()).admit(request)
        };
        std::fs::write(file.path(), "first\n").unwrap();
        let admitted = ask("first").unwrap();
        assert!(admitted.extensions().get::<Caller>().is_some());
        std::fs::write(file.path(), "second\n").unwrap();
        assert_eq!(ask("first").unwrap_err().code(), tonic::Code::Unauthenticated);
        let bare = Access::Token(file.path().to_owned()).admit(Request::new(()));
        assert_eq!(bare.unwrap_err().code(), tonic::Code::Unauthenticated);
    }

    #[test]
    fn a_caller_that_the_kernel_does_not_name_is_refused_on_a_socket() {
        let refused = Access::User(0).admit(Request::new(())).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    }
}
