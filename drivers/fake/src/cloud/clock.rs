//! Where the cloud takes its time from.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// A source of the present time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The clock of this computer.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// Begins at `start` and goes on with tokio's clock, which tests can pause.
    pub fn tokio(start: Timestamp) -> Self {
        let origin = tokio::time::Instant::now();
        Self::new(move || {
            let passed = SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::MAX);
            start.checked_add(passed).unwrap_or(Timestamp::MAX)
        })
    }

    /// Any source of time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
