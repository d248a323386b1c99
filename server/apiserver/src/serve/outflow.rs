//! Answers on their way to a reader, who may be slow or not read at all.
//!
//! An answer is handed out in small pieces. Each counts as under way until the connection has written
//! it; a client that has too many of them under way gets no more. An answer that does not come forward is
//! ended: its stream, or its connection if the stream has left something behind.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    gate::Ticket,
    kind::Kind,
    metrics::{Metrics, Why},
    tenant::Held,
};

/// What is handed to a connection in one piece, and kept by it for each answer that is not read.
const PIECE: usize = 32 << 10;
/// How often an answer looks whether its identity may have more bytes under way.
const AGAIN: Duration = Duration::from_millis(20);
/// How long what a stream has left behind may take to go when it was ended.
const AFTER: Duration = Duration::from_secs(1);

/// How an answer is ended.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// The stream, on an HTTP/2 connection.
    pub(super) stream: Option<CancellationToken>,
    /// The connection.
    pub(super) connection: CancellationToken,
}

/// When an answer is to be ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// At this time in any case.
    pub(super) until: Option<Instant>,
    /// When nothing of it was read for so long.
    pub(super) stall: Duration,
}

/// An answer that is not all written.
#[derive(Debug)]
struct Answering {
    ticket: Ticket,
    terms: Terms,
    progress: Mutex<Instant>,
    /// Frames that the connection has.
    waiting: AtomicUsize,
    /// The drop signals the end of the answer.
    _done: oneshot::Sender<Infallible>,
}

impl Answering {
    fn progressed(&self) {
        *self.progress.lock() = Instant::now();
    }

    /// When it is to be ended, as things are now.
    fn deadline(&self) -> Instant {
        let stalls = if self.terms.until.is_none() && self.waiting.load(Relaxed) == 0 {
            // There is nothing that could be read: a watch that has nothing to tell.
            Instant::now()
        } else {
            *self.progress.lock()
        } + self.terms.stall;
        self.terms.until.map_or(stalls, |until| until.min(stalls))
    }
}

/// Ends an answer when its time has come.
async fn watch_over(
    answering: Weak<Answering>,
    mut done: oneshot::Receiver<Infallible>,
    ends: Ends,
    metrics: Metrics,
) {
    loop {
        let Some(deadline) = answering.upgrade().map(|one| one.deadline()) else { return };
        if deadline <= Instant::now() {
            break;
        }
        tokio::select! {
            _ = &mut done => return,
            () = sleep_until(deadline) => {}
        }
    }
    metrics.ended(Why::Stalled);
    if let Some(stream) = ends.stream {
        stream.cancel();
        if tokio::time::timeout(AFTER, &mut done).await.is_ok() {
            return;
        }
    }
    ends.connection.cancel();
}

/// A part of an answer that a connection has to write.
struct Part {
    data: Bytes,
    answering: Arc<Answering>,
    _held: Held,
}

impl Part {
    fn new(data: Bytes, answering: &Arc<Answering>, held: Option<Held>) -> Self {
        let take = || answering.ticket.tenant().take(Kind::AnswerBytes, data.len());
        let held = held.unwrap_or_else(take);
        answering.waiting.fetch_add(1, Relaxed);
        Self { data, answering: Arc::clone(answering), _held: held }
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.answering.waiting.fetch_sub(1, Relaxed);
        self.answering.progressed();
    }
}

/// A body that counts the bytes under way.
pub(super) struct Outflow {
    inner: Body,
    rest: Bytes,
    answering: Arc<Answering>,
    /// The bytes of a body that is there as a whole, until its only frame is taken.
    whole: Option<Held>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Outflow {
    pub(super) fn new(
        inner: Body,
        ticket: Ticket,
        terms: Terms,
        ends: Ends,
        metrics: Metrics,
    ) -> Self {
        let (done, ended) = oneshot::channel();
        let whole = inner.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let whole = whole.map(|length| ticket.tenant().take(Kind::AnswerBytes, length));
        let answering = Arc::new(Answering {
            ticket,
            terms,
            progress: Mutex::new(Instant::now()),
            waiting: AtomicUsize::new(0),
            _done: done,
        });
        tokio::spawn(watch_over(Arc::downgrade(&answering), ended, ends, metrics));
        Self { inner, rest: Bytes::new(), answering, whole, pause: None }
    }

    /// Waits while the one who asks has too much under way.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            if self.whole.is_some() || self.answering.ticket.may_write() {
                return Poll::Ready(());
            }
            self.pause = Some(Box::pin(sleep(AGAIN)));
        }
    }
}

impl HttpBody for Outflow {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            if !this.rest.is_empty() {
                let length = this.rest.len().min(PIECE);
                this.answering.progressed();
                return Poll::Ready(Some(Ok(Frame::data(this.rest.split_to(length)))));
            }
            ready!(this.poll_turn(cx));
            let polled = ready!(Pin::new(&mut this.inner).poll_frame(cx));
            this.answering.ticket.settle();
            let frame = match polled {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    let part = Part::new(data, &this.answering, this.whole.take());
                    this.rest = Bytes::from_owner(part);
                }
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}
