//! A TCP proxy between driver and core that cuts, black-holes, delays and throttles.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};

/// Bytes of one read.
const PIECE: usize = 16 << 10;

/// The treatment of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flow {
    /// They pass.
    Pass,
    /// They do not, and neither end hears of it: the link looks alive from both ends.
    BlackHole,
    /// They pass after so long.
    Delay(Duration),
    /// At most so many pass in a second.
    Throttle {
        /// Bytes a second, each way.
        bytes_per_second: u32,
    },
}

/// A proxy on a port of its own. Dropping the proxy ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// The treatment of bytes of later connections.
    next: Mutex<Flow>,
    links: Mutex<Vec<Link>>,
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
    /// Something passed.
    moved: Arc<Notify>,
}

#[derive(Debug)]
struct Link {
    flow: watch::Sender<Flow>,
    tasks: [AbortHandle; 2],
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Proxy {
    /// Starts a proxy that leads to `upstream`. Everything passes.
    ///
    /// # Panics
    /// If it cannot listen on loopback.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            next: Mutex::new(Flow::Pass),
            links: Mutex::default(),
            up: Arc::default(),
            down: Arc::default(),
            moved: Arc::default(),
        });
        let accepting = tokio::spawn(accept(listener, upstream, Arc::clone(&shared)));
        Self { address, shared, accepting }
    }

    /// Where to dial.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this becomes of all bytes.
    pub fn set(&self, flow: Flow) {
        *lock(&self.shared.next) = flow;
        self.set_existing(flow);
    }

    /// The same for the connections that there are; new ones are not affected.
    pub fn set_existing(&self, flow: Flow) {
        for link in lock(&self.shared.links).iter() {
            link.flow.send_replace(flow);
        }
    }

    /// Ends every connection in the middle of whatever goes through it.
    pub fn cut(&self) {
        lock(&self.shared.links).clear();
    }

    /// Bytes from the clients.
    pub fn bytes_up(&self) -> u64 {
        self.shared.up.load(Ordering::SeqCst)
    }

    /// Waits until so many bytes passed from those who dial.
    pub async fn until_up(&self, bytes: u64) {
        loop {
            let moved = self.shared.moved.notified();
            if self.bytes_up() >= bytes {
                return;
            }
            moved.await;
        }
    }

    /// Bytes to the clients.
    pub fn bytes_down(&self) -> u64 {
        self.shared.down.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, upstream: SocketAddr, shared: Arc<Shared>) {
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(upstream).await else { continue };
        // Small frames must not wait for each other.
        let _best_effort = (near.set_nodelay(true), far.set_nodelay(true));
        let (near_in, near_out) = near.into_split();
        let (far_in, far_out) = far.into_split();
        let (flow, watched) = watch::channel(*lock(&shared.next));
        let count = |bytes: &Arc<AtomicU64>| Count {
            bytes: Arc::clone(bytes),
            moved: Arc::clone(&shared.moved),
        };
        let up = tokio::spawn(pump(near_in, far_out, watched.clone(), count(&shared.up)));
        let down = tokio::spawn(pump(far_in, near_out, watched, count(&shared.down)));
        let tasks = [up.abort_handle(), down.abort_handle()];
        lock(&shared.links).push(Link { flow, tasks });
    }
}

struct Count {
    bytes: Arc<AtomicU64>,
    moved: Arc<Notify>,
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flow: watch::Receiver<Flow>,
    count: Count,
) {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await;
        // Also the end of a connection does not pass a black hole.
        if flow.wait_for(|flow| *flow != Flow::BlackHole).await.is_err() {
            return;
        }
        let Ok(bytes @ 1..) = read else {
            let _gone = to.shutdown().await;
            return;
        };
        let now = *flow.borrow();
        match now {
            Flow::Pass | Flow::BlackHole => {}
            Flow::Delay(time) => tokio::time::sleep(time).await,
            Flow::Throttle { bytes_per_second } => {
                let moved = u32::try_from(bytes).expect("a piece is small");
                let time = f64::from(moved) / f64::from(bytes_per_second.max(1));
                tokio::time::sleep(Duration::from_secs_f64(time)).await;
            }
        }
        if to.write_all(&piece[..bytes]).await.is_err() {
            return;
        }
        let moved = u64::try_from(bytes).expect("a piece is small");
        count.bytes.fetch_add(moved, Ordering::SeqCst);
        // One waits at most; a permit is kept for it.
        count.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ended = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn say(stream: &mut TcpStream) {
        stream.write_all(b"horse").await.unwrap();
    }

    async fn hear(stream: &mut TcpStream) -> [u8; 5] {
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.unwrap();
        heard
    }

    #[tokio::test]
    async fn bytes_pass_are_held_and_pass_again_and_new_links_are_free() {
        let proxy = Proxy::start(echo().await).await;
        let mut first = TcpStream::connect(proxy.address()).await.unwrap();
        say(&mut first).await;
        assert_eq!(&hear(&mut first).await, b"horse");
        assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (5, 5));

        proxy.set_existing(Flow::BlackHole);
        say(&mut first).await;
        let mut second = TcpStream::connect(proxy.address()).await.unwrap();
        say(&mut second).await;
        assert_eq!(&hear(&mut second).await, b"horse");
        assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (10, 10));

        proxy.set(Flow::Delay(Duration::from_millis(1)));
        assert_eq!(&hear(&mut first).await, b"horse");
        proxy.set(Flow::Throttle { bytes_per_second: 10_000 });
        say(&mut first).await;
        assert_eq!(&hear(&mut first).await, b"horse");

        proxy.cut();
        assert_eq!(first.read(&mut [0; 5]).await.unwrap_or_default(), 0);
        assert_eq!(second.read(&mut [0; 5]).await.unwrap_or_default(), 0);
    }
}
