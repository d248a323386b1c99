//! Events that a driver sends unasked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::InstanceEvent;
use tokio::sync::Mutex;
use tokio::sync::mpsc;

use crate::identity::Identity;
use crate::limits;

/// Events that wait for the session; more are dropped.
const WAITING: usize = 1024;

/// Tells the core what happens to instances. Cheap to clone; every clone is the same.
///
/// Keep one in the driver, hand a clone out with [`Driver::events`](crate::Driver::events), and
/// [`send`](Self::send) what the infrastructure says. It makes the core look immediately, and is never evidence:
/// one too many costs a read, and one that is lost costs time. While there is no session in which this driver
/// is active, events are dropped.
///
/// ```
/// use std::time::Duration;
///
/// use ostler_driver_sdk::{Event, Events};
///
/// let events = Events::default();
/// events.send(Event::gone("cloud:///i-1"));
/// events.send(Event::termination_notice("cloud:///i-1").within(Duration::from_secs(120)));
/// ```
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<proto::DriverEvent>,
    /// Taken by the session.
    waiting: Arc<Mutex<mpsc::Receiver<proto::DriverEvent>>>,
}

impl Default for Events {
    fn default() -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        Self { queue, waiting: Arc::new(Mutex::new(waiting)) }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// Tells the core. Never waits; what is too much is dropped.
    pub fn send(&self, event: Event) {
        self.send_raw(event.0);
    }

    /// As [`send`](Self::send), for one that is a frame already.
    pub fn send_raw(&self, mut event: proto::DriverEvent) {
        event.message = limits::cut_message(event.message);
        let ids = [&event.provider_id, &event.cluster_id, &event.machine_uid];
        if ids.iter().any(|id| id.len() > limits::WORD_BYTES) {
            return tracing::warn!("an event is dropped: an id in it is too long");
        }
        if self.queue.try_send(event).is_err() {
            tracing::debug!("an event is dropped: too many wait");
        }
    }

    /// The next one: for the session, and for tests.
    pub async fn next(&self) -> proto::DriverEvent {
        match self.waiting.lock().await.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// An event of an instance, past or announced. `event.proto` says what each event means and what the core does.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Event(proto::DriverEvent);

impl Event {
    fn new(kind: InstanceEvent, provider_id: impl Into<String>) -> Self {
        Self(proto::DriverEvent {
            kind: kind.into(),
            provider_id: provider_id.into(),
            ..proto::DriverEvent::default()
        })
    }

    /// The instance is not there any more.
    pub fn gone(provider_id: impl Into<String>) -> Self {
        Self::new(InstanceEvent::Gone, provider_id)
    }

    /// The instance is there and not what it was, e.g. it stopped.
    pub fn changed(provider_id: impl Into<String>) -> Self {
        Self::new(InstanceEvent::Changed, provider_id)
    }

    /// The infrastructure will end the instance, e.g. one at spot price.
    pub fn termination_notice(provider_id: impl Into<String>) -> Self {
        Self::new(InstanceEvent::TerminationNotice, provider_id)
    }

    /// The infrastructure will work on the instance, which may be away for a while.
    pub fn maintenance_notice(provider_id: impl Into<String>) -> Self {
        Self::new(InstanceEvent::MaintenanceNotice, provider_id)
    }

    /// The announced event is over, or was called off.
    pub fn notice_over(provider_id: impl Into<String>) -> Self {
        Self::new(InstanceEvent::NoticeOver, provider_id)
    }

    /// The identity in the instance's tags. The core then finds the machine even if it does not know the id yet.
    pub fn of(mut self, identity: &Identity) -> Self {
        self.0.cluster_id.clone_from(&identity.cluster_id);
        self.0.machine_uid.clone_from(&identity.machine_uid);
        self
    }

    /// In how much time it will happen.
    pub fn within(mut self, time: Duration) -> Self {
        self.0.effective_in = time.try_into().ok();
        self
    }

    /// For people, without secrets; cut at 2 KiB.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }
}
