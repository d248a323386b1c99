//! Connections of drivers of the first proposal.
//!
//! Such a driver dials a new connection whenever its stream ends, and never closes the old one. What
//! it reads it reads over the connection of its stream, so that nobody else on this host reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::desk::{Desk, Paper};

/// Connections without a stream; the oldest goes when there are more.
const IDLE: usize = 8;
/// Streams at once; a driver needs one.
const STREAMS: usize = 32;

/// The number of a connection, found in each of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionId(u64);

/// All connections of a listener.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    end: CancellationToken,
    /// The desk of its stream, if it has one.
    desk: Option<Arc<Desk>>,
    /// Its stream registered as a driver that is served.
    registered: bool,
}

impl Connections {
    /// Takes a connection, at the price of the oldest ones that nobody uses.
    pub(super) fn admit<IO>(self: &Arc<Self>, io: IO) -> Connection<IO> {
        let end = CancellationToken::new();
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Entry { end: end.clone(), desk: None, registered: false });
        let idle = || table.open.values().filter(|entry| entry.desk.is_none());
        let surplus = idle().count().saturating_sub(IDLE);
        idle().take(surplus).for_each(|entry| entry.end.cancel());
        drop(table);
        let ended = Box::pin(end.cancelled_owned());
        Connection { io, id: ConnectionId(number), ended, all: Arc::clone(self) }
    }

    /// Gives a desk to the stream of a connection, for as long as the answer lives. The newest
    /// stream of a connection has it. If there are too many, the oldest one that has not registered
    /// ends. `None`: all have.
    pub(super) fn seat(self: &Arc<Self>, id: ConnectionId, desk: &Arc<Desk>) -> Option<Seat> {
        let mut table = self.lock();
        let taken = table.open.values().filter(|entry| entry.desk.is_some()).count();
        if taken >= STREAMS && table.open.get(&id.0)?.desk.is_none() {
            let strangers = |entry: &&mut Entry| entry.desk.is_some() && !entry.registered;
            let oldest = table.open.values_mut().find(strangers)?;
            oldest.desk = None;
            oldest.end.cancel();
        }
        let entry = table.open.get_mut(&id.0)?;
        entry.desk = Some(Arc::clone(desk));
        entry.registered = false;
        Some(Seat { id, desk: Arc::clone(desk), all: Arc::clone(self) })
    }

    /// The stream with this desk is that of a driver that is served.
    pub(super) fn registered(&self, desk: &Arc<Desk>) {
        let mut table = self.lock();
        let has = |entry: &&mut Entry| entry.desk.as_ref().is_some_and(|it| Arc::ptr_eq(it, desk));
        if let Some(entry) = table.open.values_mut().find(has) {
            entry.registered = true;
        }
    }

    /// What the driver of a connection may read now.
    pub(super) fn paper(&self, id: ConnectionId) -> Option<Paper> {
        let desk = self.lock().open.get(&id.0)?.desk.clone()?;
        desk.paper()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a stream; what lay on its desk is gone with it.
#[derive(Debug)]
pub(super) struct Seat {
    id: ConnectionId,
    desk: Arc<Desk>,
    all: Arc<Connections>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.desk.put(None);
        let mut table = self.all.lock();
        if let Some(entry) = table.open.get_mut(&self.id.0)
            && entry.desk.as_ref().is_some_and(|desk| Arc::ptr_eq(desk, &self.desk))
        {
            entry.desk = None;
            entry.registered = false;
        }
    }
}

/// A connection that can be ended from here.
pub(super) struct Connection<IO> {
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
        self.all.lock().open.remove(&self.id.0);
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
        let _seat = all.seat(used.id, &Arc::default()).unwrap();
        let rest: Vec<_> = (0..IDLE).map(|_| all.admit(empty())).collect();
        // Ended: it reads as closed though the other end is open.
        assert_eq!(first.read(&mut [0; 8]).await.unwrap(), 0);
        let ended = |id: ConnectionId| all.lock().open.get(&id.0).unwrap().end.is_cancelled();
        assert!(!ended(used.id) && !rest.iter().any(|it| ended(it.id)));
        drop(first);
        assert_eq!(all.lock().open.len(), 1 + IDLE);
    }

    #[tokio::test]
    async fn strangers_that_hold_all_streams_keep_no_driver_out() {
        let all = Arc::new(Connections::default());
        let mut seats = Vec::new();
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            let (connection, desk) = (all.admit(empty()), Arc::default());
            seats.push(all.seat(connection.id, &desk).unwrap());
            if number > 1 {
                all.registered(&desk);
            }
            streams.push(connection);
        }
        let ended = |number: usize| all.lock().open[&streams[number].id.0].end.is_cancelled();
        for number in 0..2 {
            assert!(!ended(number));
            let driver = all.admit(empty());
            let desk = Arc::default();
            seats.push(all.seat(driver.id, &desk).unwrap());
            all.registered(&desk);
            assert!(ended(number));
            std::mem::forget(driver);
        }
        let late = all.admit(empty());
        assert!(all.seat(late.id, &Arc::default()).is_none());
        assert!((2..STREAMS).all(|number| !ended(number)));
    }

    #[tokio::test]
    async fn a_paper_is_read_over_its_own_connection_and_goes_with_the_stream() {
        let all = Arc::new(Connections::default());
        let (own, other) = (all.admit(empty()), all.admit(empty()));
        let desk = Arc::new(Desk::default());
        let seat = all.seat(own.id, &desk).unwrap();
        desk.put(Some(Paper {
            operation_id: "o".into(),
            path: "/p".into(),
            class: <_>::default(),
            json: "{}".into(),
            user_data: None,
        }));
        assert!(all.paper(own.id).is_some() && all.paper(other.id).is_none());
        // A second stream takes the place; the end of the first does not touch it.
        let second = Arc::new(Desk::default());
        let _second = all.seat(own.id, &second).unwrap();
        assert!(all.paper(own.id).is_none());
        drop(seat);
        assert!(all.lock().open[&own.id.0].desk.is_some());
    }
}
