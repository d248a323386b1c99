//! One Register stream, as the suite sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use prost::Message;
use proto::register_response::Frame;
use proto::{Hello, Operation, RegisterResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;

use super::codec::{unknown_frame, unknown_operation};
use super::log::Log;
use crate::outcome::{Outcome, failed};

/// Frames of the suite that the transport has not taken yet.
pub(super) const OUTBOX: usize = 4096;

pub(super) type Outbox = mpsc::Sender<Result<Vec<u8>, Status>>;

/// One stream of a driver, from its Hello on.
#[derive(Debug)]
pub(crate) struct Session {
    /// The session id of the Welcome.
    pub(crate) id: String,
    pub(crate) hello: Hello,
    /// When the Hello came.
    pub(crate) since: Instant,
    pub(crate) log: Log,
    out: Mutex<Option<Outbox>>,
    acknowledges: AtomicBool,
}

impl Session {
    pub(super) fn new(hello: Hello, outbox: Outbox) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            hello,
            since: Instant::now(),
            log: Log::new(),
            out: Mutex::new(Some(outbox)),
            acknowledges: AtomicBool::new(true),
        }
    }

    /// Sends a frame.
    pub(crate) fn send(&self, frame: Frame) -> Outcome {
        self.send_bytes(RegisterResponse { frame: Some(frame) }.encode_to_vec())
    }

    /// Sends a frame with an arm that the driver cannot know.
    pub(crate) fn send_unknown(&self) -> Outcome {
        self.send_bytes(unknown_frame())
    }

    /// Sends an operation with a request that the driver cannot know.
    pub(crate) fn send_unknown_operation(&self, operation: &Operation) -> Outcome {
        self.send_bytes(unknown_operation(operation))
    }

    fn send_bytes(&self, bytes: Vec<u8>) -> Outcome {
        let out = self.out.lock();
        let Some(outbox) = &*out else {
            return Err(self.over());
        };
        match outbox.try_send(Ok(bytes)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(failed("a driver that reads its stream", "it left thousands of frames unread"))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(self.over()),
        }
    }

    fn over(&self) -> crate::outcome::NotPassed {
        let how = self.log.ended().unwrap_or_else(|| "the stream is closed".to_owned());
        failed("a session that goes on", format_args!("it ended: {how}"))
    }

    /// Ends the stream with this status, or without an error.
    pub(crate) fn close(&self, status: Option<Status>) {
        let outbox = self.out.lock().take();
        self.log.end("the suite closed it");
        if let (Some(outbox), Some(status)) = (outbox, status) {
            // If there is no room the driver reads nothing and sees the end of the stream later.
            drop(outbox.try_send(Err(status)));
        }
    }

    /// Whether results are acknowledged as they come. So it is at first.
    pub(crate) fn acknowledge(&self, on: bool) {
        self.acknowledges.store(on, Ordering::Relaxed);
    }

    pub(super) fn acknowledges(&self) -> bool {
        self.acknowledges.load(Ordering::Relaxed)
    }

    /// Acknowledges one result.
    pub(crate) fn acknowledge_result(&self, operation_id: &str) -> Outcome {
        let operation_ids = vec![operation_id.to_owned()];
        self.send(Frame::ResultAck(proto::OperationResultAck { operation_ids }))
    }

    /// Whether the stream is open.
    pub(crate) fn is_live(&self) -> bool {
        self.log.ended().is_none()
    }

    pub(super) fn heartbeats(self: &Arc<Self>, every: Duration) {
        let session = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(session) = session.upgrade().filter(|session| session.is_live()) else {
                    return;
                };
                if session.send(heartbeat()).is_err() {
                    return;
                }
            }
        });
    }
}

/// A heartbeat that can be told from others by its time.
pub(crate) fn heartbeat() -> Frame {
    let sent_at = Some(SystemTime::now().into());
    Frame::Heartbeat(proto::Heartbeat { sent_at, ..proto::Heartbeat::default() })
}
