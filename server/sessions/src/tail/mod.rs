//! Reading along: passing frames, for readers.

mod frame;

use ostler_api::ProviderName;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use ostler_proto::v1alpha1::{
    FrameInfo, RegisterRequest, RegisterResponse, TailFramesRequest, TailFramesResponse,
    register_request, register_response,
};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tonic::Status;

pub(crate) use self::frame::json_name;

/// Frames that a reader may lag behind without loss. A frame takes some kilobytes at most.
const BEHIND: usize = 1024;
/// Concurrent readers: each costs time for every frame.
const READERS: usize = 8;

/// The readers of frames.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    readers: Mutex<Vec<Arc<Reader>>>,
    /// How many there are, so that without any a frame costs next to nothing.
    count: AtomicUsize,
    pub(crate) reading: Gauge,
    pub(crate) lost: Counter,
}

#[derive(Debug)]
struct Reader {
    wanted: TailFramesRequest,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<TailFramesResponse>,
    /// Frames lost since the last waiting one.
    lost: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Tail {
    /// Reads along from now on.
    pub(crate) fn read(self: &Arc<Self>, wanted: TailFramesRequest) -> Result<Frames, Status> {
        let reader = Arc::new(Reader { wanted, state: Mutex::default() });
        let mut readers = self.readers.lock();
        if readers.len() >= READERS {
            let message = format!("{READERS} read along already; end one of them");
            return Err(Status::resource_exhausted(message));
        }
        readers.push(Arc::clone(&reader));
        self.count.store(readers.len(), Ordering::Relaxed);
        self.reading.inc();
        drop(readers);
        Ok(Frames { tail: Arc::clone(self), reader })
    }

    /// Ends every reading, since the core ends.
    pub(crate) fn end(&self) {
        for reader in self.readers.lock().iter() {
            let mut state = reader.state.lock();
            state.ended = true;
            state.wake();
        }
    }

    fn show(&self, heartbeat: bool, names: &Mutex<Names>, make: impl FnOnce() -> FrameInfo) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let names = names.lock();
        let readers = self.readers.lock();
        let wanting: Vec<_> = readers.iter().filter(|it| it.wants(heartbeat, &names)).collect();
        if wanting.is_empty() {
            return;
        }
        let frame = names.put_on(make());
        for reader in wanting {
            if !reader.push(&frame) {
                self.lost.inc();
            }
        }
    }
}

impl Reader {
    fn wants(&self, heartbeat: bool, names: &Names) -> bool {
        let fits = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        (!heartbeat || self.wanted.heartbeats)
            && fits(&self.wanted.provider, names.provider.as_str())
            && fits(&self.wanted.session_id, &names.session_id)
    }

    /// `false` if the frame is lost.
    fn push(&self, frame: &FrameInfo) -> bool {
        let mut state = self.state.lock();
        if state.waiting.len() >= BEHIND {
            state.lost += 1;
            return false;
        }
        let lost = std::mem::take(&mut state.lost);
        state.waiting.push_back(TailFramesResponse { lost, frame: Some(frame.clone()) });
        state.wake();
        true
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The frames for a reader.
#[derive(Debug)]
pub(crate) struct Frames {
    tail: Arc<Tail>,
    reader: Arc<Reader>,
}

impl Stream for Frames {
    type Item = Result<TailFramesResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.reader.state.lock();
        if let Some(next) = state.waiting.pop_front() {
            return Poll::Ready(Some(Ok(next)));
        }
        let lost = std::mem::take(&mut state.lost);
        if lost > 0 {
            return Poll::Ready(Some(Ok(TailFramesResponse { lost, frame: None })));
        }
        if state.ended {
            return Poll::Ready(Some(Err(Status::unavailable("this core ends"))));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let mut readers = self.tail.readers.lock();
        readers.retain(|reader| !Arc::ptr_eq(reader, &self.reader));
        self.tail.count.store(readers.len(), Ordering::Relaxed);
        self.tail.reading.dec();
    }
}

/// The point where the frames of a stream pass by.
#[derive(Debug, Clone)]
pub(crate) struct Tap {
    tail: Arc<Tail>,
    names: Arc<Mutex<Names>>,
}

/// The names of a stream, as far as known.
#[derive(Debug, Clone, Default)]
struct Names {
    provider: ProviderName,
    session_id: String,
}

impl Tap {
    /// The tap of a new stream.
    pub(crate) fn new(tail: &Arc<Tail>) -> Self {
        Self { tail: Arc::clone(tail), names: Arc::default() }
    }

    /// The driver sent a frame.
    pub(crate) fn received(&self, frame: &RegisterRequest) {
        use register_request::Frame;
        if let Some(Frame::Hello(hello)) = &frame.frame {
            self.names.lock().provider = hello.provider.as_str().into();
        }
        let heartbeat = matches!(frame.frame, Some(Frame::Heartbeat(_)));
        self.tail.show(heartbeat, &self.names, || frame::from_driver(frame));
    }

    /// The core sent a frame.
    pub(crate) fn sent(&self, frame: &RegisterResponse) {
        use register_response::Frame;
        if let Some(Frame::Welcome(welcome)) = &frame.frame {
            self.names.lock().session_id.clone_from(&welcome.session_id);
        }
        let heartbeat = matches!(frame.frame, Some(Frame::Heartbeat(_)));
        self.tail.show(heartbeat, &self.names, || frame::from_core(frame));
    }
}

impl Names {
    fn put_on(&self, frame: FrameInfo) -> FrameInfo {
        FrameInfo {
            provider: self.provider.clone().into(),
            session_id: self.session_id.clone(),
            ..frame
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use ostler_proto::v1alpha1::{Heartbeat, Hello, Welcome};

    use super::*;

    fn hello(provider: &str) -> RegisterRequest {
        let hello = Hello { provider: provider.to_owned(), ..Hello::default() };
        let frame = Some(register_request::Frame::Hello(Box::new(hello)));
        RegisterRequest { frame }
    }

    fn heartbeat() -> RegisterResponse {
        let frame = Some(register_response::Frame::Heartbeat(Heartbeat::default()));
        RegisterResponse { frame }
    }

    fn next(frames: &mut Frames) -> Option<TailFramesResponse> {
        frames.next().now_or_never().map(|item| item.unwrap().unwrap())
    }

    #[test]
    fn a_reader_gets_the_frames_of_what_it_asked_for() {
        let tail = Arc::new(Tail::default());
        let (ours, other) = (Tap::new(&tail), Tap::new(&tail));
        let provider = "ours.example.com".to_owned();
        let mut frames =
            tail.read(TailFramesRequest { provider, ..TailFramesRequest::default() }).unwrap();
        other.received(&hello("other.example.com"));
        ours.received(&hello("ours.example.com"));
        let welcome = Welcome { session_id: "s-1".to_owned(), ..Welcome::default() };
        let frame = Some(register_response::Frame::Welcome(Box::new(welcome)));
        ours.sent(&RegisterResponse { frame });
        ours.sent(&heartbeat());
        let kinds: Vec<_> = std::iter::from_fn(|| next(&mut frames))
            .map(|it| it.frame.unwrap())
            .map(|it| (it.kind, it.session_id))
            .collect();
        let expected = [("hello", ""), ("welcome", "s-1")];
        assert_eq!(kinds, expected.map(|(kind, id)| (kind.to_owned(), id.to_owned())));
    }

    #[test]
    fn a_slow_reader_loses_frames_and_is_told_how_many_and_where() {
        let tail = Arc::new(Tail::default());
        let tap = Tap::new(&tail);
        let wanted = TailFramesRequest { heartbeats: true, ..TailFramesRequest::default() };
        let mut frames = tail.read(wanted).unwrap();
        for _ in 0..BEHIND + 3 {
            tap.sent(&heartbeat());
        }
        assert_eq!(next(&mut frames).unwrap().lost, 0);
        tap.sent(&heartbeat());
        tap.sent(&heartbeat());
        let lost: Vec<_> = std::iter::from_fn(|| next(&mut frames))
            .map(|it| (it.lost, it.frame.is_some()))
            .filter(|(lost, _)| *lost > 0)
            .collect();
        assert_eq!(lost, [(3, true), (1, false)]);
        assert_eq!(tail.lost.get(), 4);
    }

    #[test]
    fn there_is_a_limit_of_readers_and_one_that_leaves_makes_room() {
        let tail = Arc::new(Tail::default());
        let wanted = TailFramesRequest::default;
        let mut readers: Vec<_> = (0..READERS).map(|_| tail.read(wanted()).unwrap()).collect();
        assert_eq!(tail.read(wanted()).unwrap_err().code(), tonic::Code::ResourceExhausted);
        readers.pop();
        assert_eq!(tail.reading.get(), i64::try_from(readers.len()).unwrap());
        tail.read(wanted()).unwrap();
    }

    #[test]
    fn the_end_of_the_core_is_the_end_of_every_reading() {
        let tail = Arc::new(Tail::default());
        let mut frames = tail.read(TailFramesRequest::default()).unwrap();
        tail.end();
        let last = frames.next().now_or_never().unwrap().unwrap();
        assert_eq!(last.unwrap_err().code(), tonic::Code::Unavailable);
    }
}
