//! Watching a range of keys.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::Stream;
use tokio::task::JoinSet;
use tokio_stream::wrappers::WatchStream;

use super::{
    HistoryError, Prefix, SharedEvent,
    history::{Batch, finished},
    shared::{Progress, Shared},
};

/// The changes of a range of keys after a revision: each one once, in order, once it is durable.
///
/// A watch pulls from the log at its reader's pace and buffers no more than one small batch. A
/// reader that is so slow that compaction overtakes it gets [`HistoryError::Compacted`], and then
/// the end. The stream also ends when the store is closed.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    prefix: Prefix,
    /// All events up to here are delivered or in `ready`.
    reached: u64,
    ready: VecDeque<SharedEvent>,
    /// The batch that is read from the log, if one is.
    reading: JoinSet<Result<Batch, HistoryError>>,
    progress: WatchStream<Progress>,
    ended: bool,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>, prefix: Prefix, after: u64) -> Self {
        let progress = WatchStream::from_changes(shared.progress());
        let (ready, reading) = (VecDeque::new(), JoinSet::new());
        Self { shared, prefix, reached: after, ready, reading, progress, ended: false }
    }

    /// Every change of the range up to this revision has been delivered: what a bookmark may say.
    pub fn reached(&self) -> u64 {
        self.ready.front().map_or(self.reached, |next| next.revision - 1)
    }

    /// Bytes of what was read for it and not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.iter().map(|event| event.size()).sum()
    }

    /// Looks for new events; whether the store may have more than was taken.
    fn refill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, HistoryError>> {
        let batch = loop {
            if let Some(read) = ready!(self.reading.poll_join_next(cx)) {
                break finished(read)?;
            }
            if let Some(batch) = self.shared.events(&self.prefix, self.reached)? {
                break batch;
            }
            self.reading.spawn(self.shared.older_events(&self.prefix, self.reached));
        };
        let progressed = batch.reached > self.reached;
        self.reached = batch.reached;
        self.ready.extend(batch.events);
        Poll::Ready(Ok(progressed))
    }
}

impl Stream for Watch {
    type Item = Result<SharedEvent, HistoryError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match ready!(this.refill(cx)) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match Pin::new(&mut this.progress).poll_next(cx) {
                Poll::Ready(Some(progress)) if !progress.closed => {}
                Poll::Ready(Some(_) | None) => this.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
