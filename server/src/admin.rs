//! The listener for people: DriverDebugService, health, reflection, on a unix socket or loopback.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ostler_sessions::{
    Caller, Gate, GateLayer, GateRules, ListenAddress, Listeners, Pass, Peer, Principal, Providers,
    Sessions, StaticTokens, bounded_server,
};
use tokio_util::sync::CancellationToken;
use tonic::service::{InterceptorLayer, Routes};
use tonic::{Request, Status};

/// For how long calls may take to end when the core goes.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Concurrent connections, unless the descriptors were shared out: people and their tools.
const CONNECTIONS: usize = 64;
/// Every call here is authenticated; the large call is the one with a whole operation.
const OWN: &str = "/";
const LARGE: &str = "/ostler.driver.v1alpha1.DriverDebugService/Invoke";

fn gate(connections: usize) -> Gate {
    Gate::new(GateRules::new(connections))
}

/// A bound admin listener.
#[derive(Debug)]
pub struct AdminListener {
    listeners: Listeners,
    access: Access,
    gate: Gate,
}

impl AdminListener {
    /// Listens on a unix socket, for the user of this process and root; or on loopback, for those
    /// who show the token in `token_file`.
    ///
    /// # Errors
    /// The address cannot be listened on, is not for this, or the token file is missing.
    pub async fn bind(address: &ListenAddress, token_file: Option<&Path>) -> anyhow::Result<Self> {
        if let ListenAddress::Tcp(at) = address {
            if !at.ip().is_loopback() {
                bail!(
                    "--admin-listen {at} is not on loopback: this listener changes machines and speaks no TLS; use unix:PATH or 127.0.0.1:PORT"
                );
            }
            let file = token_file.with_context(|| {
                format!("--admin-listen {at} needs --admin-token-file; or use unix:PATH")
            })?;
            token(file)?;
        }
        let listeners = Listeners::bind(std::slice::from_ref(address), None)
            .await
            .with_context(|| format!("--admin-listen {address} cannot be used"))?;
        let access = match (address, token_file) {
            (ListenAddress::Unix { path, .. }, _) => {
                let socket = std::fs::metadata(path)
                    .with_context(|| format!("the admin socket {} is gone", path.display()))?;
                Access::User(socket.uid())
            }
            (ListenAddress::Tcp(_), file) => {
                Access::Token(file.map(Path::to_owned).unwrap_or_default())
            }
        };
        Ok(Self { listeners, access, gate: gate(CONNECTIONS) })
    }

    /// With room for so many concurrent connections.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        Self { gate: gate(connections), ..self }
    }

    /// Serves until `end`, and then for as long as calls take to end, but not for long.
    pub(crate) async fn serve(
        self,
        routes: Routes,
        sessions: Sessions,
        end: CancellationToken,
    ) -> anyhow::Result<()> {
        let Self { listeners, access, gate } = self;
        let server = bounded_server()
            .layer(GateLayer::<Peer>::new(OWN, LARGE))
            .layer(InterceptorLayer::new(move |request| access.admit(request)))
            .add_routes(routes)
            .serve_with_incoming_shutdown(
                gate.guard(listeners.incoming()),
                end.clone().cancelled_owned(),
            );
        let mut server = Box::pin(server);
        tokio::select! {
            ended = &mut server => return ended.context("the admin listener failed"),
            () = end.cancelled() => {}
        }
        // A client that tails frames would go on for ever.
        sessions.end_admin();
        let _late = tokio::time::timeout(END_WITHIN, server).await;
        Ok(())
    }
}

/// The allowed callers.
#[derive(Clone, Debug)]
enum Access {
    /// The user with this id, and root.
    User(u32),
    /// Callers with the token in this file.
    Token(PathBuf),
}

impl Access {
    fn admit(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let caller = match self {
            Self::User(owner) => user(&peer, *owner)?,
            Self::Token(file) => bearer(&request, &peer, file)?,
        };
        if let Some(pass) = request.extensions().get::<Pass>() {
            pass.known(&caller)?;
        }
        request.extensions_mut().insert(Caller(caller));
        Ok(request)
    }
}

fn user(peer: &Peer, owner: u32) -> Result<String, Status> {
    let process = peer
        .process
        .ok_or_else(|| Status::permission_denied("the kernel does not tell which user calls"))?;
    if process.uid != owner && process.uid != 0 {
        tracing::warn!(uid = process.uid, "another user called the admin listener");
        return Err(Status::permission_denied(
            "call as the user that the core runs as, or as root",
        ));
    }
    let pid = process.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    Ok(format!("user {}{pid}", process.uid))
}

fn bearer(request: &Request<()>, peer: &Peer, file: &Path) -> Result<String, Status> {
    let shown = request.metadata().get("authorization");
    let shown = shown.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let shown = shown.ok_or_else(|| {
        Status::unauthenticated("the call has no admin token: authorization: Bearer <token>")
    })?;
    let expected = token(file).map_err(|error| Status::unavailable(format!("{error:#}")))?;
    if expected.find(shown).is_none() {
        tracing::warn!(peer = peer.address, "a wrong token was shown to the admin listener");
        return Err(Status::unauthenticated("the admin token is not that of --admin-token-file"));
    }
    Ok(peer.address.clone())
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
    use ostler_sessions::PeerProcess;

    use super::*;

    #[tokio::test]
    async fn a_listener_on_loopback_needs_a_token_file_that_says_something() {
        let address = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let refused = AdminListener::bind(&address, None).await.unwrap_err().to_string();
        assert!(refused.contains("--admin-token-file"), "{refused}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = AdminListener::bind(&address, Some(file.path())).await.unwrap_err();
        assert!(refused.to_string().contains("is empty"), "{refused}");
        std::fs::write(file.path(), "s3cret\n").unwrap();
        AdminListener::bind(&address, Some(file.path())).await.unwrap();
    }

    #[tokio::test]
    async fn a_listener_beyond_loopback_is_refused() {
        let address = "0.0.0.0:0".parse().unwrap();
        let refused = AdminListener::bind(&address, None).await.unwrap_err().to_string();
        assert!(refused.contains("not on loopback"), "{refused}");
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
    fn a_socket_is_for_its_owner_and_root() {
        let ask = |uid: Option<u32>| {
            let process = uid.map(|uid| PeerProcess { uid, gid: uid, pid: Some(7) });
            let mut request = Request::new(());
            request.extensions_mut().insert(Peer { process, ..Peer::default() });
            Access::User(1000).admit(request)
        };
        for uid in [0, 1000] {
            let Caller(caller) = ask(Some(uid)).unwrap().extensions().get().cloned().unwrap();
            assert_eq!(caller, format!("user {uid}, process 7"));
        }
        for uid in [Some(1001), None] {
            assert_eq!(ask(uid).unwrap_err().code(), tonic::Code::PermissionDenied);
        }
    }
}
