//! Accepting: one loop for each listener, and a bounded number of handshakes beside it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::certificate;
use super::connection::{Connection, Wire};
use super::metrics::{Metrics, Rejection};
use super::tls::ServerTls;
use super::unix::Bound;
use crate::{Gate, Peer, PeerProcess};

/// TLS connections whose handshake is not over, each a file descriptor. The oldest goes when a
/// quarter of the limit is taken: strangers can take only a bounded part, and keep no driver out.
pub(super) const HANDSHAKES: usize = 256;
/// Limit of a handshake; a healthy one takes milliseconds.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// After a failure to accept, e.g. for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(200);
/// For a peer that was turned away to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// First byte of every TLS connection.
const TLS_HANDSHAKE: u8 = 22;

/// Where accepted connections go.
pub(super) type Accepted = mpsc::Sender<Connection>;

/// The shared state of the accept loops.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) accepted: Accepted,
    pub(super) handshakes: Gate,
    pub(super) metrics: Metrics,
}

/// Accepts on a unix socket for as long as the receiver takes connections.
pub(super) async fn unix(mut socket: Bound, door: Door) {
    while let Ok(room) = door.accepted.reserve().await {
        match socket.accept().await {
            Ok(stream) => {
                let peer = unix_peer(&stream);
                room.send(Connection { wire: Wire::Unix(stream), peer });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts plaintext, which is for loopback.
pub(super) async fn plain(listener: TcpListener, door: Door) {
    while let Ok(room) = door.accepted.reserve().await {
        match accept(&listener).await {
            Ok((stream, address)) => {
                let peer = Peer { address: address.to_string(), ..Peer::default() };
                room.send(Connection { wire: Wire::Plain(stream), peer });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts TLS. No handshake waits for another.
pub(super) async fn tls(listener: TcpListener, tls: Arc<ServerTls>, door: Door) {
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = door.accepted.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let Some(admission) = door.handshakes.admit_from(address.ip()) else {
            door.metrics.rejected(address, &Rejection::Crowded);
            continue;
        };
        let (config, door) = (tls.config(), door.clone());
        tokio::spawn(async move {
            let handshake = shake_hands(stream, address, TlsAcceptor::from(config));
            let shaken = tokio::select! {
                shaken = tokio::time::timeout(HANDSHAKE, handshake) => shaken,
                () = admission.ended() => Ok(Err(Rejection::Crowded)),
            };
            match shaken {
                Ok(Ok(connection)) => {
                    // There is no receiver once the core stops.
                    let _stopped = door.accepted.send(connection).await;
                }
                Ok(Err(rejection)) => door.metrics.rejected(address, &rejection),
                Err(_) => door.metrics.rejected(address, &Rejection::Timeout),
            }
            drop(admission);
        });
    }
}

/// Without Nagle's delay, every small frame leaves immediately.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a connection of a driver could not be accepted");
    tokio::time::sleep(PAUSE).await;
}

fn unix_peer(stream: &UnixStream) -> Peer {
    let process = stream.peer_cred().ok().map(|credentials| PeerProcess {
        uid: credentials.uid(),
        gid: credentials.gid(),
        pid: credentials.pid(),
    });
    let address = match process {
        Some(PeerProcess { uid, pid: Some(pid), .. }) => format!("unix:uid={uid},pid={pid}"),
        Some(PeerProcess { uid, .. }) => format!("unix:uid={uid}"),
        None => "unix:".to_owned(),
    };
    Peer { address, process, certificate: None }
}

async fn shake_hands(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
) -> Result<Connection, Rejection> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(0) | Err(_) => return Err(Rejection::Silent),
        Ok(_) if first == [TLS_HANDSHAKE] => {}
        Ok(_) => {
            say_tls_is_needed(stream).await;
            return Err(Rejection::Plaintext);
        }
    }
    let stream = acceptor.accept(stream).await.map_err(Rejection::Handshake)?;
    let (_, session) = stream.get_ref();
    if session.alpn_protocol() != Some(b"h2") {
        return Err(Rejection::NotHttp2);
    }
    let shown = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = match shown {
        Some(shown) => Some(Arc::new(certificate::peer(shown).ok_or(Rejection::Nameless)?)),
        None => None,
    };
    let peer = Peer { address: address.to_string(), certificate, process: None };
    Ok(Connection { wire: Wire::Tls(Box::new(stream)), peer })
}

/// Ends an HTTP/2 connection in plaintext with a reason that its libraries show.
async fn say_tls_is_needed(mut stream: TcpStream) {
    const WHY: &[u8] = b"this port speaks TLS: dial it with https://";
    const LENGTH: u8 = 51;
    const _: () = assert!(LENGTH as usize == 8 + WHY.len(), "the head of GOAWAY and its reason");
    // An empty SETTINGS frame, then the head of GOAWAY: no stream was handled, INADEQUATE_SECURITY.
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: [u8; 17] = [0, 0, LENGTH, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];
    let farewell = async {
        stream.write_all(&[SETTINGS.as_slice(), &GOAWAY, WHY].concat()).await?;
        stream.shutdown().await?;
        // Closed with unread bytes, the connection would be reset, and the reason lost.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    let _rude = tokio::time::timeout(FAREWELL, farewell).await;
}
