//! Where drivers dial in: plaintext on loopback, TLS anywhere, unix sockets.
//!
//! Each listener has an accept loop; accepted connections come out of one stream, with the
//! [`Peer`](crate::Peer) beside each.

mod accept;
mod address;
mod certificate;
mod connection;
mod metrics;
mod tls;
mod unix;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::accept::Door;
pub use self::address::ListenAddress;
pub use self::connection::Connection;
use self::metrics::Metrics;
pub use self::tls::{ServerTls, TlsError, TlsFiles};
pub use self::unix::UnixError;
use self::unix::{Bound, SocketFile};
use crate::{Gate, GateRules};

/// Connections that were accepted and are not served yet.
const ACCEPTED: usize = 16;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Plaintext would cross the network.
    #[error(
        "{0} is not a loopback address, and plaintext would show tokens and secrets to the network: give a certificate, or listen on 127.0.0.1 or unix:PATH"
    )]
    Plaintext(SocketAddr),
    /// The port cannot be had.
    #[error("{address} cannot be listened on")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The socket cannot be had.
    #[error(transparent)]
    Unix(#[from] UnixError),
}

/// Bound addresses on which nothing is accepted yet.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<Socket>,
    tls: Option<Arc<ServerTls>>,
    metrics: Metrics,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(Bound, ListenAddress),
}

impl Listeners {
    /// Binds all of `addresses`. With `tls`, every TCP port speaks TLS; without, TCP ports are for
    /// loopback only.
    ///
    /// # Errors
    /// An address cannot be bound; the others are released.
    pub async fn bind(
        addresses: &[ListenAddress],
        tls: Option<ServerTls>,
    ) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for address in addresses {
            sockets.push(match address {
                ListenAddress::Tcp(address) => bind_tcp(*address, tls.is_some()).await?,
                ListenAddress::Unix { path, mode } => {
                    Socket::Unix(unix::bind(path, *mode).await?, address.clone())
                }
            });
        }
        Ok(Self { sockets, tls: tls.map(Arc::new), metrics: Metrics::default() })
    }

    /// The addresses, with the ports that were chosen for port 0.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        let address = |socket: &Socket| match socket {
            Socket::Tcp(_, address) => ListenAddress::Tcp(*address),
            Socket::Unix(_, address) => address.clone(),
        };
        self.sockets.iter().map(address).collect()
    }

    /// The TLS of TCP ports, if any.
    pub fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref()
    }

    /// Registers the metrics, once.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(self.tls.as_ref(), registry);
    }

    /// Starts to accept. Must be called on a tokio runtime.
    pub fn incoming(self) -> Incoming {
        let (accepted, connections) = mpsc::channel(ACCEPTED);
        let door = Door {
            accepted,
            handshakes: Gate::new(GateRules {
                unknown: accept::HANDSHAKE,
                ..GateRules::new(accept::HANDSHAKES)
            }),
            metrics: self.metrics,
        };
        let mut tasks = JoinSet::new();
        let mut files = Vec::new();
        for socket in self.sockets {
            match (socket, &self.tls) {
                (Socket::Unix(socket, _), _) => {
                    files.push(socket.file());
                    tasks.spawn(accept::unix(socket, door.clone()));
                }
                (Socket::Tcp(listener, _), Some(tls)) => {
                    tasks.spawn(accept::tls(listener, Arc::clone(tls), door.clone()));
                }
                (Socket::Tcp(listener, _), None) => {
                    tasks.spawn(accept::plain(listener, door.clone()));
                }
            }
        }
        if let Some(tls) = self.tls {
            tasks.spawn(tls.follow());
        }
        Incoming { connections, files, _tasks: tasks }
    }
}

async fn bind_tcp(address: SocketAddr, tls: bool) -> Result<Socket, ListenError> {
    if !tls && !address.ip().is_loopback() {
        return Err(ListenError::Plaintext(address));
    }
    let failed = |source| ListenError::Tcp { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok(Socket::Tcp(listener, bound))
}

/// The accepted connections. Dropped, it stops to listen.
#[derive(Debug)]
pub struct Incoming {
    connections: mpsc::Receiver<Connection>,
    files: Vec<Arc<SocketFile>>,
    _tasks: JoinSet<()>,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        for file in &self.files {
            file.remove();
        }
    }
}

impl Stream for Incoming {
    type Item = Result<Connection, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.connections.poll_recv(cx).map(|connection| connection.map(Ok))
    }
}

/// Reads a certificate; for the fuzz target.
#[cfg(any(feature = "fuzz", test))]
pub(crate) fn fuzz(der: &[u8]) {
    drop(certificate::peer(der));
    let _times = certificate::validity(der);
}
