//! The network of the world in one process.

use std::sync::{Arc, Mutex};

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Capacity of one direction of a pipe, in bytes.
const PIPE: usize = 1 << 20;

/// The network between driver and core: pipes that can be cut.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    inner: Arc<Mutex<WireEnds>>,
}

#[derive(Debug, Default)]
struct WireEnds {
    /// Cores that can be dialled, by number.
    doors: Vec<(u32, mpsc::Sender<DuplexStream>)>,
    /// Cores that stop: dropping the door of a listener would end its connections.
    shut: Vec<mpsc::Sender<DuplexStream>>,
    dialled: usize,
    links: Vec<AbortHandle>,
}

impl Wire {
    /// From now on dialling may end at this listener.
    pub(crate) fn lead_to(&self, number: u32) -> mpsc::Receiver<DuplexStream> {
        let (door, connections) = mpsc::channel(8);
        self.inner.lock().expect("no thread panicked").doors.push((number, door));
        connections
    }

    /// Dialling does not end there any more; connections stay.
    pub(crate) fn forget(&self, number: u32) {
        let mut ends = self.inner.lock().expect("no thread panicked");
        let shut = ends.doors.extract_if(.., |(door, _)| *door == number).map(|(_, door)| door);
        let shut: Vec<_> = shut.collect();
        ends.shut.extend(shut);
    }

    /// Every connection ends, as if the processes at the other end were gone.
    pub(crate) fn cut(&self) {
        {
            let mut ends = self.inner.lock().expect("no thread panicked");
            ends.doors.clear();
            ends.shut.clear();
        }
        self.hang_up();
    }

    /// Every connection ends; the core can still be dialled.
    ///
    /// # Panics
    /// If another one did.
    pub fn hang_up(&self) {
        let mut ends = self.inner.lock().expect("no thread panicked");
        ends.links.drain(..).for_each(|link| link.abort());
    }

    /// A gRPC connection.
    ///
    /// # Errors
    /// No core listens.
    pub async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let wire = self.clone();
        let dial = service_fn(move |_| {
            let wire = wire.clone();
            async move { wire.dial().await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://core").connect_with_connector(dial).await
    }

    pub(crate) async fn dial(&self) -> std::io::Result<DuplexStream> {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let door = {
            let mut ends = self.inner.lock().expect("no thread panicked");
            ends.dialled += 1;
            let next = ends.dialled % ends.doors.len().max(1);
            ends.doors.get(next).map(|(_, door)| door.clone()).ok_or_else(refused)?
        };
        let (ours, mut near) = tokio::io::duplex(PIPE);
        let (mut far, theirs) = tokio::io::duplex(PIPE);
        door.send(theirs).await.map_err(|_gone| refused())?;
        let link = tokio::spawn(async move {
            let _ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        self.inner.lock().expect("no thread panicked").links.push(link.abort_handle());
        Ok(ours)
    }
}
