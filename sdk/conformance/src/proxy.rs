//! A TCP proxy between driver and core that cuts, delays, swallows and stops reading.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const BUFFER: usize = 16 * 1024;

/// The proxy; all its connections end with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    wires: Arc<Wires>,
    accept: JoinHandle<()>,
}

#[derive(Debug)]
struct Wires {
    upstream: Mutex<SocketAddr>,
    rules: watch::Sender<Rules>,
    connections: AtomicU64,
}

/// What is done to connections. They have numbers from 0.
#[derive(Debug, Clone, Copy, Default)]
struct Rules {
    refuse: bool,
    deaf: bool,
    delay: Duration,
    /// Connections below this number are cut.
    cut: u64,
    /// Connections below this number carry nothing any more.
    hole: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToCore,
    ToDriver,
}

impl Rules {
    fn is_cut(&self, id: u64) -> bool {
        id < self.cut
    }

    fn carries(&self, id: u64, direction: Direction) -> bool {
        id >= self.hole && !(self.deaf && direction == Direction::ToCore)
    }
}

impl Proxy {
    /// Listens on `listen` and forwards to `upstream`.
    pub(crate) async fn start(listen: SocketAddr, upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let wires = Arc::new(Wires {
            upstream: Mutex::new(upstream),
            rules: watch::Sender::new(Rules::default()),
            connections: AtomicU64::new(0),
        });
        let accept = tokio::spawn(accept(listener, Arc::clone(&wires)));
        Ok(Self { address, wires, accept })
    }

    /// Forwards new connections there.
    pub(crate) fn point_to(&self, upstream: SocketAddr) {
        *self.wires.upstream.lock() = upstream;
    }

    /// Cuts every connection that there is. New ones are welcome.
    pub(crate) fn cut(&self) {
        let next = self.next();
        self.wires.rules.send_modify(|rules| rules.cut = next);
    }

    /// Swallows all that is said on the connections that there are, in both directions, without
    /// closing them. New ones work.
    pub(crate) fn black_hole(&self) {
        let next = self.next();
        self.wires.rules.send_modify(|rules| rules.hole = next);
    }

    /// Refuses new connections, or takes them again.
    pub(crate) fn refuse(&self, on: bool) {
        self.wires.rules.send_modify(|rules| rules.refuse = on);
    }

    /// Stops reading from the driver, or begins again.
    pub(crate) fn deaf(&self, on: bool) {
        self.wires.rules.send_modify(|rules| rules.deaf = on);
    }

    /// Passes everything on after this time only.
    pub(crate) fn delay(&self, time: Duration) {
        self.wires.rules.send_modify(|rules| rules.delay = time);
    }

    /// Forwards as if nothing had ever been wrong; connections that were swallowed are cut.
    pub(crate) fn heal(&self) {
        self.wires.rules.send_modify(|rules| {
            *rules = Rules { cut: rules.cut.max(rules.hole), ..Rules::default() };
        });
    }

    fn next(&self) -> u64 {
        self.wires.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
        self.wires.rules.send_modify(|rules| rules.cut = u64::MAX);
    }
}

async fn accept(listener: TcpListener, wires: Arc<Wires>) {
    loop {
        // A connection that broke before it was taken is not worth a word.
        let Ok((stream, _)) = listener.accept().await else { continue };
        if wires.rules.borrow().refuse {
            continue;
        }
        let id = wires.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(connect(stream, Arc::clone(&wires), id));
    }
}

async fn connect(driver: TcpStream, wires: Arc<Wires>, id: u64) {
    let upstream = *wires.upstream.lock();
    let Ok(core) = TcpStream::connect(upstream).await else { return };
    // Delays of the kernel would blur what checks measure.
    if driver.set_nodelay(true).and_then(|()| core.set_nodelay(true)).is_err() {
        return;
    }
    let (from_driver, to_driver) = driver.into_split();
    let (from_core, to_core) = core.into_split();
    let mut rules = wires.rules.subscribe();
    let both = async {
        tokio::join!(
            pump((from_driver, to_core), &wires, id, Direction::ToCore),
            pump((from_core, to_driver), &wires, id, Direction::ToDriver),
        );
    };
    tokio::select! {
        () = both => {}
        _ = rules.wait_for(|rules| rules.is_cut(id)) => {}
    }
}

async fn pump(
    (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
    wires: &Wires,
    id: u64,
    direction: Direction,
) {
    let mut rules = wires.rules.subscribe();
    let mut buffer = vec![0; BUFFER];
    loop {
        if rules.wait_for(|rules| rules.carries(id, direction)).await.is_err() {
            return;
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = rules.changed() => continue,
        };
        let Some(said) = read.ok().and_then(|count| buffer.get(..count)) else { return };
        if said.is_empty() {
            // Half of the connection ended; the other may go on.
            drop(to.shutdown().await);
            return;
        }
        let delay = rules.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(said).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    async fn proxied() -> (Proxy, TcpStream) {
        let upstream = echo().await;
        let proxy = Proxy::start(([127, 0, 0, 1], 0).into(), upstream).await.unwrap();
        let stream = TcpStream::connect(proxy.address).await.unwrap();
        (proxy, stream)
    }

    async fn says(stream: &mut TcpStream, word: &[u8; 2]) {
        stream.write_all(word).await.unwrap();
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, word);
    }

    #[tokio::test]
    async fn a_cut_ends_old_connections_and_lets_new_ones_in() {
        let (proxy, mut stream) = proxied().await;
        says(&mut stream, b"hi").await;
        proxy.cut();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
        let mut again = TcpStream::connect(proxy.address).await.unwrap();
        says(&mut again, b"ho").await;
    }

    #[tokio::test]
    async fn a_black_hole_keeps_the_connection_and_swallows_what_is_said() {
        let (proxy, mut stream) = proxied().await;
        says(&mut stream, b"hi").await;
        proxy.black_hole();
        stream.write_all(b"lost").await.unwrap();
        let mut fresh = TcpStream::connect(proxy.address).await.unwrap();
        says(&mut fresh, b"ho").await;
        proxy.heal();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0, "nothing came, then the cut");
    }

    #[tokio::test]
    async fn a_deaf_core_reads_later() {
        let (proxy, mut stream) = proxied().await;
        proxy.deaf(true);
        stream.write_all(b"hi").await.unwrap();
        proxy.deaf(false);
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hi");
    }
}
