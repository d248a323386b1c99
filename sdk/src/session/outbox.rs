//! Frames on their way to the core. The transport takes them from here itself: no task and no channel stands
//! between.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::Stream;
use ostler_proto::v1alpha1::RegisterRequest;
use parking_lot::Mutex;

/// Takes the frames of one stream. The stream ends when it is dropped, and what still waits is lost.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Arc<Mutex<State>>);

/// The frames of an [`Outbox`].
#[derive(Debug)]
pub(crate) struct Frames(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<RegisterRequest>,
    ended: bool,
    reader: Option<Waker>,
}

impl Outbox {
    /// The frames for the transport, once.
    pub(crate) fn frames(&self) -> Frames {
        Frames(Arc::clone(&self.0))
    }

    /// How many frames wait for the transport.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().frames.len()
    }

    pub(crate) fn push(&self, frame: RegisterRequest) {
        self.change(|state| state.frames.push_back(frame));
    }

    /// Ends the stream after the frames that wait.
    pub(crate) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let reader = {
            let mut state = self.0.lock();
            change(&mut state);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.change(|state| {
            state.frames.clear();
            state.ended = true;
        });
    }
}

impl Stream for Frames {
    type Item = RegisterRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RegisterRequest>> {
        let mut state = self.0.lock();
        if let Some(frame) = state.frames.pop_front() {
            return Poll::Ready(Some(frame));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn the_stream_ends_after_the_frames_that_wait_and_without_them_when_the_outbox_is_gone() {
        for gone in [false, true] {
            let outbox = Outbox::default();
            let frames = outbox.frames();
            outbox.push(RegisterRequest::default());
            outbox.push(RegisterRequest::default());
            assert_eq!(outbox.waiting(), 2);
            outbox.end();
            let outbox = (!gone).then_some(outbox);
            assert_eq!(frames.count().await, if outbox.is_some() { 2 } else { 0 });
        }
    }

    #[tokio::test]
    async fn a_frame_wakes_the_transport() {
        let outbox = Outbox::default();
        let mut frames = outbox.frames();
        let read = tokio::spawn(async move { frames.next().await });
        tokio::task::yield_now().await;
        outbox.push(RegisterRequest::default());
        assert!(read.await.unwrap().is_some());
    }
}
