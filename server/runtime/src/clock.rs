//! The only source of wall-clock time.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// The controllers' source of wall-clock time. Durations come from tokio's clock instead, so that a test on a paused
/// clock moves both.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of the host.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// Keeps a [`Clock`] in a struct that derives `Debug`.
#[derive(Clone)]
pub struct DebugClock(pub Clock);

impl fmt::Debug for DebugClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
