//! One Register stream between the wire and the hub.

use std::sync::Arc;
use std::time::SystemTime;

use ostler_proto::v1alpha1::RegisterRequest;
use ostler_proto::v1alpha1::register_request::Frame;
use tonic::{Status, Streaming};

use super::scrub;
use crate::Principal;
use crate::hub::SessionKey;
use crate::session::Close;
use crate::session::outbox::{Outbox, OutboxStream};
use crate::shell::Shell;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Opens a stream. Answers before the driver has said anything: a client may wait for the head of
/// the answer before it sends its Hello.
pub(super) fn open(
    shell: &Arc<Shell>,
    principal: Principal,
    peer: String,
    frames: Streaming<RegisterRequest>,
) -> Result<OutboxStream, Status> {
    let (key, outbox) = shell.open(principal, peer).map_err(|close| close.status())?;
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
        let next = tokio::select! {
            biased;
            () = outbox.closed() => return,
            next = frames.message() => next,
        };
        match next {
            Ok(Some(mut frame)) => {
                let seq = frame.seq;
                scrub::frame(&shell, key, &mut frame);
                let skew = skew(&frame);
                outbox.received(&frame);
                shell.with(|hub, now| hub.frame(now, key, frame));
                if let Some(skew) = skew {
                    shell.with(|hub, _| hub.skewed(key, skew));
                }
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

/// How far the clock of a driver is ahead, if this is a Hello that says so.
fn skew(frame: &RegisterRequest) -> Option<prost_types::Duration> {
    let Some(Frame::Hello(hello)) = &frame.frame else { return None };
    let theirs = hello.driver_time?;
    let ours = prost_types::Timestamp::from(SystemTime::now());
    let nanos = |it: &prost_types::Timestamp| {
        i128::from(it.seconds) * NANOS_PER_SECOND + i128::from(it.nanos)
    };
    let ahead = nanos(&theirs) - nanos(&ours);
    let seconds = i64::try_from(ahead / NANOS_PER_SECOND).ok()?;
    let nanos = i32::try_from(ahead % NANOS_PER_SECOND).ok()?;
    Some(prost_types::Duration { seconds, nanos })
}

/// Whether a frame came but could not be read. An error with a cause is one of the connection:
/// then the driver is gone, whatever the code says.
fn is_unreadable(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
}
