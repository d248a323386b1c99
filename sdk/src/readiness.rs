//! Whether the driver can work, as its author sees it.

use tokio::sync::watch;

/// Says whether the driver can work. Cheap to clone; every clone is the same.
///
/// Keep one in the driver, hand a clone out with [`Driver::readiness`](crate::Driver::readiness), and say
/// [`not_ready`](Self::not_ready) when the infrastructure is away: the core then sends nothing new, machines wait with
/// a reason that people see, and after a minute a ready standby takes over. Running operations go on.
///
/// ```
/// use ostler_driver_sdk::Readiness;
///
/// let readiness = Readiness::default();
/// readiness.not_ready("the API of the cloud does not answer");
/// assert!(!readiness.is_ready());
/// readiness.ready();
/// assert!(readiness.is_ready());
/// ```
#[derive(Debug, Clone)]
pub struct Readiness {
    /// Why it is not ready.
    lack: watch::Sender<Option<String>>,
}

/// Ready.
impl Default for Readiness {
    fn default() -> Self {
        Self { lack: watch::Sender::new(None) }
    }
}

impl Readiness {
    /// The driver can work.
    pub fn ready(&self) {
        self.set(None);
    }

    /// The driver cannot work for now. `reason` is for people, without secrets.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    /// Whether the driver can work.
    pub fn is_ready(&self) -> bool {
        self.lack.borrow().is_none()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<String>> {
        self.lack.subscribe()
    }

    fn set(&self, lack: Option<String>) {
        self.lack.send_if_modified(|current| {
            let changed = *current != lack;
            *current = lack;
            changed
        });
    }
}
