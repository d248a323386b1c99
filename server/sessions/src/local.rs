//! A session without a wire: a driver within the process of the core.

use std::sync::Arc;

use futures::StreamExt as _;
use ostler_proto::v1alpha1::{Hello, ObjectRevision, register_request, register_response};
use tonic::Status;

use crate::convert::class_reference;
use crate::hub::SessionKey;
use crate::service::scrub;
use crate::session::outbox::{Outbox, OutboxStream};
use crate::shell::Shell;
use crate::{ClassContent, ClassError, Principal, SecretContent, Sessions, SessionsOptions};

/// One session of the hub, ended when dropped.
#[derive(Debug)]
pub struct LocalSession {
    shell: Arc<Shell>,
    key: SessionKey,
    outbox: Outbox,
    frames: OutboxStream,
}

impl LocalSession {
    /// Sends a frame to the hub.
    pub fn send(&mut self, mut frame: register_request::Frame) {
        let key = self.key;
        scrub::frame(&self.shell, key, &mut frame, &mut None);
        self.shell.with(|hub, now| hub.frame(now, key, Some(frame)));
    }

    /// The next frame of the hub; an error once it has ended the session.
    pub async fn next(&mut self) -> Result<Option<register_response::Frame>, Status> {
        match self.frames.next().await {
            Some(response) => Ok(response?.frame),
            None => Err(Status::unavailable("the session is over")),
        }
    }
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        self.shell.ended(self.key, false);
        self.outbox.end();
    }
}

impl Sessions {
    /// Opens a session for a driver within this process, and introduces the driver.
    pub fn open_local(
        &self,
        principal: Principal,
        peer: String,
        hello: Hello,
    ) -> Result<LocalSession, Status> {
        let opened = self.shell.open(principal, peer);
        let (key, outbox) = opened.map_err(|close| close.status())?;
        let (shell, frames) = (Arc::clone(&self.shell), OutboxStream(outbox.clone()));
        let mut session = LocalSession { shell, key, outbox, frames };
        session.send(register_request::Frame::Hello(Box::new(hello)));
        Ok(session)
    }

    /// A class at the revision that an operation refers to. `Ok(None)` if the class is there, but
    /// not at that revision any more.
    pub fn class(&self, wanted: &ObjectRevision) -> Result<Option<Arc<ClassContent>>, ClassError> {
        self.shell.revisions.find(self.shell.classes.as_ref(), wanted)
    }

    /// The merged secret of a class, see [`ClassSource::secret`](crate::ClassSource::secret).
    pub async fn secret(&self, class: &ObjectRevision) -> Result<SecretContent, ClassError> {
        self.shell.classes.secret(&class_reference(class)).await
    }

    /// How the sessions were set up.
    pub fn options(&self) -> &SessionsOptions {
        &self.shell.options
    }
}
