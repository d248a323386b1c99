//! One Register stream between the wire and the hub.

use std::sync::Arc;
use std::time::SystemTime;

use ostler_proto::v1alpha1::{RegisterRequest, register_request};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Status, Streaming};

use super::scrub;
use crate::Principal;
use crate::hub::SessionKey;
use crate::session::Close;
use crate::session::outbox::{Outbox, OutboxStream};
use crate::shell::Shell;

/// Opens a stream. Answers before the driver has said anything: a client may wait for the head of
/// the answer before it sends its Hello.
pub(super) fn open(
    shell: &Arc<Shell>,
    principal: Principal,
    peer: String,
    frames: Streaming<RegisterRequest>,
    arrival: OwnedSemaphorePermit,
) -> Result<OutboxStream, Status> {
    let (key, outbox) =
        shell.open(principal, peer, Some(arrival)).map_err(|close| close.status())?;
    tokio::spawn(read(Arc::clone(shell), key, outbox.clone(), frames));
    Ok(OutboxStream(outbox))
}

/// Hands every frame to the hub, until either side ends the stream.
async fn read(
    shell: Arc<Shell>,
    key: SessionKey,
    outbox: Outbox,
    mut frames: Streaming<RegisterRequest>,
) {
    loop {
        outbox.room().await;
        let next = tokio::select! {
            biased;
            () = outbox.closed() => return,
            next = frames.message() => next,
        };
        match next {
            Ok(Some(mut frame)) => {
                let seq = frame.seq;
                scrub::frame(&shell, key, &mut frame);
                let ahead = clock_ahead(&frame, SystemTime::now());
                outbox.received(&frame);
                shell.with(|hub, now| {
                    hub.frame(now, key, frame);
                    if let Some(ahead) = ahead {
                        hub.clock_is_off(key, ahead);
                    }
                });
                outbox.handled(seq);
            }
            Err(status) if is_unreadable(&status) => {
                let close = Close::unreadable(&status);
                return shell.with(|hub, now| hub.close(now, key, close));
            }
            Ok(None) | Err(_) => {
                shell.ended(key);
                return outbox.end();
            }
        }
    }
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
        | Frame::Unsupported(_) => None,
    };
    let millis = |time: prost_types::Timestamp| {
        time.seconds.saturating_mul(1000).saturating_add(i64::from(time.nanos / 1_000_000))
    };
    theirs.map(|theirs| millis(theirs).saturating_sub(millis(now.into())))
}

/// Whether a frame came but could not be read. An error with a cause is one of the connection:
/// then the driver is gone, whatever the code says.
fn is_unreadable(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}
