//! One Register stream between the wire and the hub.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures::{FutureExt as _, StreamExt as _};
use ostler_proto::v1alpha1::{RegisterRequest, register_request};
use tonic::{Status, Streaming};

use super::scrub;
use crate::Principal;
use crate::hub::SessionKey;
use crate::session::Close;
use crate::session::outbox::{Outbox, OutboxStream};
use crate::shell::Shell;

/// Most frames handled together: a driver accepts an operation and completes it in one breath.
const AT_ONCE: usize = 32;

/// Opens a stream. Answers before the driver has said anything: a client may wait for the head of
/// the answer before it sends its Hello.
pub(super) fn open(
    shell: &Arc<Shell>,
    principal: Principal,
    peer: String,
    frames: Streaming<RegisterRequest>,
) -> Result<OutboxStream, Status> {
    let (key, outbox) = shell.open(principal, peer).map_err(|close| close.status())?;
    let (shell, read_for) = (Arc::clone(shell), outbox.clone());
    tokio::spawn(async move {
        let reading = AssertUnwindSafe(read(&shell, key, &read_for, frames));
        if reading.catch_unwind().await.is_err() {
            // A bug must not leave a session behind whose frames are not read.
            shell.ended(key, false);
            read_for.end();
        }
    });
    Ok(OutboxStream(outbox))
}

/// Hands every frame to the hub, until either side ends the stream.
async fn read(
    shell: &Shell,
    key: SessionKey,
    outbox: &Outbox,
    mut frames: Streaming<RegisterRequest>,
) {
    let mut read = Vec::new();
    let mut closed = pin!(outbox.closed());
    loop {
        outbox.room().await;
        let next = tokio::select! {
            biased;
            () = &mut closed => return,
            next = frames.next() => next,
        };
        let end = together(&mut frames, next, &mut read);
        hand_over(shell, key, outbox, &mut read);
        match end {
            None => {}
            Some(End::Broken(status)) if is_unreadable(&status) => {
                let close = Close::unreadable(&status);
                return shell.with(|hub, now| hub.close(now, key, close));
            }
            Some(end) => {
                shell.ended(key, matches!(end, End::InOrder));
                return outbox.end();
            }
        }
    }
}

/// How a stream of frames ends.
enum End {
    /// The driver ended the stream.
    InOrder,
    /// The stream broke, or a frame could not be read.
    Broken(Status),
}

/// Puts the next frame into `read`, with waiting ones; the end of the stream if it comes after them. Nothing is read
/// past an error: the rest is the middle of a frame.
fn together(
    frames: &mut Streaming<RegisterRequest>,
    mut next: Option<Result<RegisterRequest, Status>>,
    read: &mut Vec<RegisterRequest>,
) -> Option<End> {
    loop {
        match next {
            Some(Ok(frame)) => read.push(frame),
            Some(Err(status)) => return Some(End::Broken(status)),
            None => return Some(End::InOrder),
        }
        if read.len() >= AT_ONCE {
            return None;
        }
        match frames.next().now_or_never() {
            Some(there) => next = there,
            None => return None,
        }
    }
}

/// Hands frames that came together to the hub together: it is locked once.
fn hand_over(shell: &Shell, key: SessionKey, outbox: &Outbox, read: &mut Vec<RegisterRequest>) {
    let mut last = None;
    for request in read.iter_mut() {
        if let Some(frame) = &mut request.frame {
            scrub::frame(shell, key, frame, &mut last);
        }
        outbox.received(request);
    }
    let clock = SystemTime::now();
    shell.with(|hub, now| {
        for frame in read.drain(..) {
            let ahead = clock_ahead(&frame, clock);
            hub.frame(now, key, frame.frame);
            if let Some(ahead) = ahead {
                hub.clock_is_off(key, ahead);
            }
        }
    });
}

/// By how many milliseconds the clock of a driver is ahead, if it says what time it has.
fn clock_ahead(frame: &RegisterRequest, now: SystemTime) -> Option<i64> {
    use register_request::Frame;
    let theirs = match frame.frame.as_ref()? {
        Frame::Hello(hello) => hello.driver_time,
        Frame::Heartbeat(heartbeat) => heartbeat.driver_time,
        Frame::Accepted(_)
        | Frame::Progress(_)
        | Frame::Page(_)
        | Frame::Completed(_)
        | Frame::State(_)
        | Frame::Event(_) => None,
    };
    let millis = |time: prost_types::Timestamp| {
        time.seconds.saturating_mul(1000).saturating_add(i64::from(time.nanos / 1_000_000))
    };
    theirs.map(|theirs| millis(theirs).saturating_sub(millis(now.into())))
}

/// Whether a frame came but could not be read. An error with a cause is an error of the connection: then the driver is
/// gone, whatever the code says.
fn is_unreadable(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}
