//! A session of the hub without a wire: what a driver is to the core, within the core.

use std::sync::Arc;

use futures::StreamExt as _;
use ostler_proto::v1alpha1::{Hello, RegisterRequest, register_request};
use tonic::Status;

use crate::Principal;
use crate::hub::SessionKey;
use crate::session::outbox::{Outbox, OutboxStream};
use crate::session::{Close, Frame};
use crate::shell::Shell;

/// One session of the hub, ended when dropped.
#[derive(Debug)]
pub(super) struct Link {
    shell: Arc<Shell>,
    key: SessionKey,
    outbox: Outbox,
    frames: OutboxStream,
    seq: u64,
}

impl Link {
    /// Opens a session and introduces the driver.
    pub(super) fn open(
        shell: &Arc<Shell>,
        principal: Principal,
        peer: String,
        hello: Hello,
    ) -> Result<Self, Close> {
        let (key, outbox) = shell.open(principal, peer, None)?;
        let frames = OutboxStream(outbox.clone());
        let mut link = Self { shell: Arc::clone(shell), key, outbox, frames, seq: 0 };
        link.send(register_request::Frame::Hello(hello));
        Ok(link)
    }

    /// Says something to the hub.
    pub(super) fn send(&mut self, frame: register_request::Frame) {
        self.seq += 1;
        let (seq, key) = (self.seq, self.key);
        let frame = RegisterRequest { seq, ack_seq: 0, frame: Some(frame) };
        self.shell.with(|hub, now| hub.frame(now, key, frame));
        self.outbox.handled(seq);
    }

    /// What the hub says next; an error once it has ended the session.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, Status> {
        match self.frames.next().await {
            Some(response) => Ok(response?.frame),
            None => Err(Status::unavailable("the session is over")),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shell.ended(self.key, false);
        self.outbox.end();
    }
}
