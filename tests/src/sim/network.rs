//! Links between drivers and cores: pipes that are slow, fall silent and break.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper_util::rt::TokioIo;
use ostler_driver_sdk::{ConnectError, Connection, Connector};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, sleep_until};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::weather::Sky;

/// Capacity of one direction of a pipe, in bytes.
const PIPE: usize = 1 << 16;
/// Cores that dial in at the same time.
const DOOR: usize = 8;

/// The network. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Network {
    sky: Sky,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    doors: Vec<(String, mpsc::Sender<DuplexStream>)>,
    links: Vec<Link>,
    dialled: usize,
}

#[derive(Debug)]
struct Link {
    driver: String,
    core: String,
    task: AbortHandle,
}

impl Network {
    /// Without any process in it.
    pub fn new(sky: Sky) -> Self {
        Self { sky, inner: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A core listens from now on.
    pub fn listen(&self, core: &str) -> mpsc::Receiver<DuplexStream> {
        let (door, connections) = mpsc::channel(DOOR);
        let mut inner = self.lock();
        inner.doors.retain(|(name, _)| name != core);
        inner.doors.push((core.to_owned(), door));
        connections
    }

    /// A process is gone, with its connections.
    pub fn gone(&self, process: &str) {
        let mut inner = self.lock();
        inner.doors.retain(|(name, _)| name != process);
        inner.links.retain(|link| {
            let ends = link.driver == process || link.core == process;
            if ends {
                link.task.abort();
            }
            !ends
        });
    }

    /// Every connection ends.
    pub fn cut(&self) {
        self.lock().links.drain(..).for_each(|link| link.task.abort());
    }

    /// The connector of a driver.
    pub fn connector(&self, driver: &str, token: &'static str) -> Connector {
        let (network, driver) = (self.clone(), driver.to_owned());
        Connector::new(move || {
            let (network, driver) = (network.clone(), driver.clone());
            async move {
                let channel = network.channel(&driver).await.ok_or(ConnectError::Timeout)?;
                Connection::new(channel).with_token(token)
            }
        })
    }

    /// A connection of a driver to the next core; `None`: there is none.
    pub async fn channel(&self, driver: &str) -> Option<Channel> {
        let (network, driver) = (self.clone(), driver.to_owned());
        let dial = service_fn(move |_| {
            let (network, driver) = (network.clone(), driver.clone());
            async move { network.dial(&driver).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://core").connect_with_connector(dial).await.ok()
    }

    async fn dial(&self, driver: &str) -> std::io::Result<DuplexStream> {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        sleep(self.sky.link_delay()).await;
        let (core, door) = {
            let mut inner = self.lock();
            inner.dialled += 1;
            let next = inner.dialled % inner.doors.len().max(1);
            inner.doors.get(next).cloned().ok_or_else(refused)?
        };
        let (ours, near) = tokio::io::duplex(PIPE);
        let (far, theirs) = tokio::io::duplex(PIPE);
        door.send(theirs).await.map_err(|_gone| refused())?;
        let sky = self.sky.clone();
        let task = tokio::spawn(async move {
            let ((near_in, near_out), (far_in, far_out)) =
                (tokio::io::split(near), tokio::io::split(far));
            // The end of one direction ends the other, as a reset does.
            tokio::select! {
                biased;
                () = carry(near_in, far_out, &sky) => {}
                () = carry(far_in, near_out, &sky) => {}
            }
        });
        let link = Link { driver: driver.to_owned(), core, task: task.abort_handle() };
        let mut inner = self.lock();
        inner.links.retain(|link| !link.task.is_finished());
        inner.links.push(link);
        Ok(ours)
    }
}

/// Carries one direction until an end is gone. Bytes that come while the link is silent are lost with it.
async fn carry(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, sky: &Sky) {
    let mut buffer = vec![0; PIPE];
    let mut frames = Frames::default();
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let delay = sky.link_delay();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if let Some(until) = sky.link_silent() {
            sleep_until(until).await;
            return;
        }
        let whole = frames.cut(&buffer[..read], || sky.link_twice());
        if to.write_all(&whole).await.is_err() {
            return;
        }
    }
}

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's head: its length, kind, flags and stream.
const FRAME_HEAD: usize = 9;
/// Bytes before a message of gRPC: whether it is compressed, its length.
const MESSAGE_HEAD: usize = 5;

/// Cuts a stream of bytes into frames of HTTP/2, some of which come twice.
#[derive(Debug, Default)]
struct Frames {
    begun: bool,
    rest: Vec<u8>,
}

impl Frames {
    /// Takes what came, and gives the frames that are whole.
    fn cut(&mut self, came: &[u8], twice: impl Fn() -> bool) -> Vec<u8> {
        self.rest.extend_from_slice(came);
        let mut out = Vec::with_capacity(self.rest.len());
        let mut at = 0;
        if !self.begun && self.rest.starts_with(b"P") {
            if self.rest.len() < PREFACE.len() {
                return out;
            }
            at = PREFACE.len();
            out.extend_from_slice(&self.rest[..at]);
        }
        self.begun = true;
        while let Some(frame) = frame(&self.rest[at..]) {
            out.extend_from_slice(frame);
            at += frame.len();
            if is_message(frame) && twice() {
                out.extend_from_slice(frame);
            }
        }
        self.rest.drain(..at);
        out
    }
}

/// The first frame, if it is whole.
fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let [high, middle, low, ..] = bytes else { return None };
    let length = u32::from_be_bytes([0, *high, *middle, *low]);
    bytes.get(..FRAME_HEAD + usize::try_from(length).ok()?)
}

/// Whether a frame is one whole message of a stream that goes on.
fn is_message(frame: &[u8]) -> bool {
    const DATA: u8 = 0;
    let (kind, flags) = (frame[3], frame[4]);
    let (DATA, 0, Some([_, length @ .., _])) =
        (kind, flags, frame.get(FRAME_HEAD..=FRAME_HEAD + MESSAGE_HEAD))
    else {
        return false;
    };
    let length = length.try_into().map(u32::from_be_bytes).unwrap_or_default();
    usize::try_from(length).is_ok_and(|length| FRAME_HEAD + MESSAGE_HEAD + length == frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![0, 0, length, 0, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn whole_messages_come_twice_and_nothing_else_does() {
        let message = data(0, &[0, 0, 0, 0, 2, 7, 8]);
        let last = data(1, &[0, 0, 0, 0, 1, 9]);
        let part = data(0, &[0, 0, 0, 1, 0, 9]);
        let settings = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
        let sent = [PREFACE, &settings, &message, &last, &part].concat();
        let expected = [PREFACE, &settings, &message, &message, &last, &part].concat();
        for size in [1, 5, 1000] {
            let mut frames = Frames::default();
            let came: Vec<u8> =
                sent.chunks(size).flat_map(|chunk| frames.cut(chunk, || true)).collect();
            assert_eq!(came, expected, "in pieces of {size}");
        }
    }
}
