//! Connections without manners: bytes as they are, kept open, read or not.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::attacks::table;

/// The transport of a connection.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Wire for T {}

/// Writes what the peer takes within the time; true if it took all.
pub(crate) async fn push(wire: &mut impl Wire, bytes: &[u8], time: Duration) -> bool {
    let pushed = timeout(time, async {
        wire.write_all(bytes).await?;
        wire.flush().await
    });
    matches!(pushed.await, Ok(Ok(())))
}

/// Reads until the peer ends the connection, or until the time is over: then `None`. At most so much is kept.
pub(crate) async fn drain(wire: &mut impl Wire, keep: usize, time: Duration) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    let ended = timeout(time, async {
        while let Ok(count @ 1..) = wire.read(&mut buffer).await {
            let room = keep.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..count.min(room)]);
        }
    });
    ended.await.ok()?;
    Some(kept)
}

/// Runs `make` for 0..count, some of them at the same time, and keeps what they make.
pub(crate) async fn many<T, F>(count: usize, at_once: usize, make: impl FnMut(usize) -> F) -> Vec<T>
where
    F: Future<Output = T>,
{
    futures::stream::iter((0..count).map(make)).buffer_unordered(at_once).collect().await
}

/// Attacks that are mostly about waiting, each on a server of its own: all in parallel, unless
/// their figures are wanted. Each is carried through before one of them fails the test.
pub(crate) async fn together(attacks: Vec<LocalBoxFuture<'static, ()>>) {
    let attacks = attacks.into_iter().map(|attack| AssertUnwindSafe(attack).catch_unwind());
    let at_once = if table::wanted() { 1 } else { attacks.len() };
    let outcomes: Vec<_> = futures::stream::iter(attacks).buffered(at_once).collect().await;
    for outcome in outcomes {
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
