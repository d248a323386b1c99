//! Frames on their way to a driver. Writing never waits; reading is the response stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use ostler_proto::v1alpha1::{RegisterRequest, RegisterResponse};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Close, Frame};
use crate::tail::Tap;

/// Most acknowledgements in a frame: with the longest ids it stays below the 64 KiB of the contract.
const ACKNOWLEDGED: usize = 200;

/// The limit on the number of frames of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// The limit of the outbox: the core says such things by itself, now and then.
    Limited,
    /// The limit of the outbox: the driver can call for such frames as often as it likes. At the limit
    /// nothing more of the driver is read, see [`Outbox::room`].
    Answer,
    /// Something else: the credit of the session for operations and cancels.
    Reserved,
    /// The number of targets. It goes with the next frame, or when the outbox is flushed: such frames
    /// are worth no packet and no wake-up of their own.
    Unhurried,
}

/// The outbox of a session; clones are the same outbox.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    state: Arc<Mutex<State>>,
    closed: CancellationToken,
    /// Where people read along.
    tap: Option<Tap>,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<(Frame, Room)>,
    limited: usize,
    answers: usize,
    limit: usize,
    /// Since when the frame in front waits.
    since: Instant,
    end: End,
    reader: Option<Waker>,
    /// The task waiting for room for answers.
    writer: Option<Waker>,
}

#[derive(Debug)]
enum End {
    Open,
    Closing(Status),
    Closed,
}

impl Outbox {
    /// An empty outbox for at most `limit` frames of [`Room::Limited`], and about as many answers.
    pub(crate) fn new(limit: usize) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            limited: 0,
            answers: 0,
            limit,
            since: Instant::now(),
            end: End::Open,
            reader: None,
            writer: None,
        };
        let closed = CancellationToken::new();
        Self { state: Arc::new(Mutex::new(state)), closed, tap: None }
    }

    /// The same, with people who may read along.
    pub(crate) fn tapped(limit: usize, tap: Tap) -> Self {
        Self { tap: Some(tap), ..Self::new(limit) }
    }

    /// A frame of the driver came in.
    pub(crate) fn received(&self, frame: &RegisterRequest) {
        if let Some(tap) = &self.tap {
            tap.received(frame);
        }
    }

    /// Adds a frame; `false` if there is no room, and the driver does not read. Frames for a
    /// closed outbox are dropped.
    pub(crate) fn push(&self, frame: Frame, room: Room) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.end, End::Open) {
            return true;
        }
        match room {
            Room::Limited if state.limited >= state.limit => return false,
            Room::Limited => state.limited += 1,
            Room::Answer => state.answers += 1,
            Room::Reserved | Room::Unhurried => {}
        }
        if state.waiting.is_empty() {
            state.since = Instant::now();
        }
        if let Some(frame) = state.join(frame, room) {
            state.waiting.push_back((frame, room));
        }
        if room != Room::Unhurried {
            state.wake();
        }
        true
    }

    /// Frames that waited for company go now.
    pub(crate) fn flush(&self) {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            state.wake();
        }
    }

    /// Resolves once there is room for an answer, or the stream is over. A driver may come back with hundreds of
    /// results that all want an answer, and read no answer before it has written the last result: that is a burst, and
    /// no reason to end the session. A driver that goes on without reading is found by [`Outbox::stalled`].
    pub(crate) async fn room(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            if state.answers < state.limit || !matches!(state.end, End::Open) {
                return Poll::Ready(());
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether a frame has waited for `limit` without being read.
    pub(crate) fn stalled(&self, limit: Duration) -> bool {
        let state = self.state.lock();
        !state.waiting.is_empty() && state.since.elapsed() >= limit
    }

    /// Ends the stream with `close`, after the waiting frames unless `close` discards them.
    pub(crate) fn close(&self, close: &Close) {
        let mut state = self.state.lock();
        if matches!(state.end, End::Open) {
            if close.discard {
                state.waiting.clear();
            }
            let last = Frame::ProtocolError(close.frame());
            state.waiting.push_back((last, Room::Reserved));
            state.end = End::Closing(close.status());
            state.wake();
            state.wake_writer();
        }
        drop(state);
        self.closed.cancel();
    }

    /// The driver is gone: nothing more is written.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        state.end = End::Closed;
        state.wake();
        state.wake_writer();
    }

    /// Resolves once the outbox is closed.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Puts acknowledgements into the frame that waits last, if that has some and room for more; otherwise
    /// gives the frame back.
    fn join(&mut self, frame: Frame, room: Room) -> Option<Frame> {
        match (frame, self.waiting.back_mut()) {
            (Frame::ResultAck(more), Some((Frame::ResultAck(last), of)))
                if *of == room && last.operation_ids.len() < ACKNOWLEDGED =>
            {
                last.operation_ids.extend(more.operation_ids);
                None
            }
            (frame, _) => Some(frame),
        }
    }

    fn take(&mut self) -> Option<RegisterResponse> {
        let (frame, room) = self.waiting.pop_front()?;
        match room {
            Room::Limited => self.limited = self.limited.saturating_sub(1),
            Room::Answer => {
                self.answers = self.answers.saturating_sub(ids_of(&frame));
                self.wake_writer();
            }
            Room::Reserved | Room::Unhurried => {}
        }
        if !self.waiting.is_empty() {
            self.since = Instant::now();
        }
        Some(RegisterResponse { frame: Some(frame) })
    }
}

/// How many acknowledgements a frame has, or one.
fn ids_of(frame: &Frame) -> usize {
    if let Frame::ResultAck(ack) = frame { ack.operation_ids.len() } else { 1 }
}

/// The response stream of a session.
#[derive(Debug)]
pub(crate) struct OutboxStream(pub(crate) Outbox);

impl Stream for OutboxStream {
    type Item = Result<RegisterResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.state.lock();
        if let Some(frame) = state.take() {
            drop(state);
            if let Some(tap) = &self.0.tap {
                tap.sent(&frame);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        match std::mem::replace(&mut state.end, End::Closed) {
            End::Open => {
                state.end = End::Open;
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
            End::Closing(status) => Poll::Ready(Some(Err(status))),
            End::Closed => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::super::frames;
    use super::*;

    const LIMITED: Room = Room::Limited;

    #[tokio::test(start_paused = true)]
    async fn frames_come_out_in_order_and_acknowledgements_together() {
        let outbox = Outbox::new(8);
        let mut stream = OutboxStream(outbox.clone());
        assert!(outbox.push(frames::heartbeat(), LIMITED));
        for id in ["a", "b"] {
            assert!(outbox.push(frames::result_ack(id), Room::Answer));
        }
        assert!(outbox.push(frames::result_ack("c"), Room::Unhurried));
        let mut next = async || stream.next().await.unwrap().unwrap().frame.unwrap();
        assert_eq!(next().await, frames::heartbeat());
        let Frame::ResultAck(ack) = next().await else { panic!("no acknowledgement") };
        assert_eq!(ack.operation_ids, ["a", "b"]);
        assert_eq!(outbox.state.lock().answers, 0);
        assert_eq!(next().await, frames::result_ack("c"));
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_a_driver_calls_for_are_limited_and_operations_are_not() {
        let outbox = Outbox::new(2);
        assert!(
            outbox.push(frames::heartbeat(), LIMITED) && outbox.push(frames::heartbeat(), LIMITED)
        );
        assert!(!outbox.push(frames::heartbeat(), LIMITED));
        assert!(outbox.push(frames::cancel("a", "no"), Room::Reserved));
        OutboxStream(outbox.clone()).next().await.unwrap().unwrap();
        assert!(outbox.push(frames::heartbeat(), LIMITED));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outbox_is_stalled_when_its_front_frame_waits_too_long() {
        let outbox = Outbox::new(8);
        let limit = Duration::from_secs(10);
        tokio::time::advance(limit).await;
        assert!(!outbox.stalled(limit));
        assert!(
            outbox.push(frames::heartbeat(), LIMITED) && outbox.push(frames::heartbeat(), LIMITED)
        );
        tokio::time::advance(limit / 2).await;
        OutboxStream(outbox.clone()).next().await.unwrap().unwrap();
        tokio::time::advance(limit / 2).await;
        assert!(!outbox.stalled(limit));
        tokio::time::advance(limit / 2).await;
        assert!(outbox.stalled(limit));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_says_why_and_ends_with_a_status() {
        for (close, before) in [(Close::superseded(), 1), (Close::not_reading(), 0)] {
            let outbox = Outbox::new(8);
            assert!(outbox.push(frames::heartbeat(), LIMITED));
            outbox.close(&close);
            assert!(outbox.push(frames::heartbeat(), LIMITED), "dropped, not refused");
            let items: Vec<_> = OutboxStream(outbox.clone()).collect().await;
            assert_eq!(items.len(), before + 2);
            let last = items[before].as_ref().unwrap().frame.clone();
            assert_eq!(last, Some(Frame::ProtocolError(close.frame())));
            assert_eq!(items[before + 1].as_ref().unwrap_err().code(), close.code);
            outbox.closed().await;
        }
    }
}
