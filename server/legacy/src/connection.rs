//! Connections of drivers of the first proposal.
//!
//! A legacy driver dials a new connection whenever its stream ends, and never closes the old one. The core answers
//! reads only over the connection of the driver's stream, so that no other process on this host reads the answers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::context::{OperationContext, StreamContext};

/// Connections without a stream; the oldest goes when there are more.
const IDLE: usize = 8;
/// Concurrent streams; a driver needs one.
const STREAMS: usize = 32;

/// The number of a connection, found in each of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// All connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    end: CancellationToken,
    /// The data readable for the stream, if there is a stream.
    readable: Option<Arc<StreamContext>>,
    /// The stream registered as a served driver.
    registered: bool,
}

impl Connections {
    /// Takes a connection, and ends the oldest ones without a stream if there are too many.
    pub(crate) fn admit<IO>(self: &Arc<Self>, io: IO) -> Connection<IO> {
        let end = CancellationToken::new();
        let mut table = self.0.lock();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Entry { end: end.clone(), readable: None, registered: false });
        let idle = || table.open.values().filter(|entry| entry.readable.is_none());
        let surplus = idle().count().saturating_sub(IDLE);
        idle().take(surplus).for_each(|entry| entry.end.cancel());
        drop(table);
        let ended = Box::pin(end.cancelled_owned());
        Connection { io, id: ConnectionId(number), ended, all: Arc::clone(self) }
    }

    /// Lets the stream of a connection read from `readable`, for as long as the answer lives. The newest stream of a
    /// connection replaces an older one. If there are too many streams, the oldest unregistered stream ends. `None`:
    /// all have registered.
    pub(crate) fn claim_stream(
        self: &Arc<Self>,
        id: ConnectionId,
        readable: &Arc<StreamContext>,
    ) -> Option<StreamSlot> {
        let mut table = self.0.lock();
        let taken = table.open.values().filter(|entry| entry.readable.is_some()).count();
        if taken >= STREAMS && table.open.get(&id.0)?.readable.is_none() {
            let strangers = |entry: &&mut Entry| entry.readable.is_some() && !entry.registered;
            let oldest = table.open.values_mut().find(strangers)?;
            oldest.readable = None;
            oldest.end.cancel();
        }
        let entry = table.open.get_mut(&id.0)?;
        entry.readable = Some(Arc::clone(readable));
        entry.registered = false;
        Some(StreamSlot { id, readable: Arc::clone(readable), all: Arc::clone(self) })
    }

    /// The stream that reads from `readable` belongs to a served driver.
    pub(crate) fn registered(&self, readable: &Arc<StreamContext>) {
        let mut table = self.0.lock();
        let has = |entry: &&mut Entry| {
            entry.readable.as_ref().is_some_and(|it| Arc::ptr_eq(it, readable))
        };
        if let Some(entry) = table.open.values_mut().find(has) {
            entry.registered = true;
        }
    }

    /// The data readable now for the driver of a connection.
    pub(crate) fn readable(&self, id: ConnectionId) -> Option<OperationContext> {
        let readable = self.0.lock().open.get(&id.0)?.readable.clone()?;
        readable.get()
    }
}

/// The slot of a stream. When it is dropped, the stream may read nothing more.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    id: ConnectionId,
    readable: Arc<StreamContext>,
    all: Arc<Connections>,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.readable.set(None);
        let mut table = self.all.0.lock();
        if let Some(entry) = table.open.get_mut(&self.id.0)
            && entry.readable.as_ref().is_some_and(|readable| Arc::ptr_eq(readable, &self.readable))
        {
            entry.readable = None;
            entry.registered = false;
        }
    }
}

/// A connection that can be ended from here.
pub(crate) struct Connection<IO> {
    io: IO,
    id: ConnectionId,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    all: Arc<Connections>,
}

impl<IO> fmt::Debug for Connection<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = ConnectionId;

    fn connect_info(&self) -> ConnectionId {
        self.id
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Connection<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl<IO> Drop for Connection<IO> {
    fn drop(&mut self) {
        self.all.0.lock().open.remove(&self.id.0);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, empty};

    use super::*;

    #[tokio::test]
    async fn the_oldest_connections_without_a_stream_end_when_there_are_too_many() {
        let all = Arc::new(Connections::default());
        let (mut first, _other) = {
            let (ours, theirs) = tokio::io::duplex(8);
            (all.admit(ours), theirs)
        };
        let used = all.admit(empty());
        let _seat = all.claim_stream(used.id, &Arc::default()).unwrap();
        let rest: Vec<_> = (0..IDLE).map(|_| all.admit(empty())).collect();
        // Ended: it reads as closed though the other end is open.
        assert_eq!(first.read(&mut [0; 8]).await.unwrap(), 0);
        let ended = |id: ConnectionId| all.0.lock().open.get(&id.0).unwrap().end.is_cancelled();
        assert!(!ended(used.id) && !rest.iter().any(|it| ended(it.id)));
        drop(first);
        assert_eq!(all.0.lock().open.len(), 1 + IDLE);
    }

    #[tokio::test]
    async fn strangers_that_hold_all_streams_keep_no_driver_out() {
        let all = Arc::new(Connections::default());
        let mut seats = Vec::new();
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            let (connection, readable) = (all.admit(empty()), Arc::default());
            seats.push(all.claim_stream(connection.id, &readable).unwrap());
            if number > 1 {
                all.registered(&readable);
            }
            streams.push(connection);
        }
        let ended = |number: usize| all.0.lock().open[&streams[number].id.0].end.is_cancelled();
        for number in 0..2 {
            assert!(!ended(number));
            let driver = all.admit(empty());
            let readable = Arc::default();
            seats.push(all.claim_stream(driver.id, &readable).unwrap());
            all.registered(&readable);
            assert!(ended(number));
            std::mem::forget(driver);
        }
        let late = all.admit(empty());
        assert!(all.claim_stream(late.id, &Arc::default()).is_none());
        assert!((2..STREAMS).all(|number| !ended(number)));
    }

    #[tokio::test]
    async fn a_paper_is_read_over_its_own_connection_and_goes_with_the_stream() {
        let all = Arc::new(Connections::default());
        let (own, other) = (all.admit(empty()), all.admit(empty()));
        let readable = Arc::new(StreamContext::default());
        let slot = all.claim_stream(own.id, &readable).unwrap();
        readable.set(Some(OperationContext {
            operation_id: "o".into(),
            path: "/p".into(),
            class: <_>::default(),
            json: "{}".into(),
            user_data: None,
        }));
        assert!(all.readable(own.id).is_some() && all.readable(other.id).is_none());
        // A second stream takes the place; the end of the first does not touch it.
        let second = Arc::new(StreamContext::default());
        let _second = all.claim_stream(own.id, &second).unwrap();
        assert!(all.readable(own.id).is_none());
        drop(slot);
        assert!(all.0.lock().open[&own.id.0].readable.is_some());
    }
}
