//! Knowledge about the operation of a target.

use crate::OperationId;
use crate::ProviderName;
use std::fmt;
use std::time::Duration;

use super::{InstanceRecord, Outcome, Success};
use crate::driver::OperationKind;

/// The operation of a target. At most one exists at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OperationView {
    /// None is queued or in flight, and no result waits to be acknowledged.
    #[default]
    Idle,
    /// No operation is known here, but this core leads only since a moment: for so long, a driver may still come back
    /// with an operation of an earlier core.
    Expected(Duration),
    /// Queued, sent, or with a session that was lost and may come back.
    InFlight(InFlight),
    /// Finished; the result is kept until it is acknowledged.
    Finished(Finished),
}

impl OperationView {
    /// The instance that a finished operation reports.
    pub fn reported(&mut self) -> Option<&mut InstanceRecord> {
        let Self::Finished(finished) = self else { return None };
        match finished.outcome.as_mut().ok()? {
            Success::Created(record)
            | Success::Read(record)
            | Success::Initialized(Some(record)) => Some(record),
            Success::Initialized(None)
            | Success::Updated { .. }
            | Success::Deleted { .. }
            | Success::VolumeIds(_)
            | Success::Listed { .. }
            | Success::Reviewed(_)
            | Success::PoolChanged(_)
            | Success::PoolRead { .. }
            | Success::PoolsListed { .. }
            | Success::PoolMachinesDeleted { .. }
            | Success::PoolMachineUpdated(_) => None,
        }
    }
}

/// An operation whose outcome is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// The id of the operation.
    pub id: OperationId,
    /// The provider of the operation's driver, by the name that drivers use.
    pub provider: ProviderName,
    /// The verb.
    pub kind: OperationKind,
    /// Key of the intent.
    pub idempotency_key: String,
    /// The place of the operation.
    pub place: Place,
    /// For how long it is in the queue or with its driver.
    pub age: Duration,
    /// Whether the operation was cancelled.
    pub cancelled: bool,
    /// The driver's last report.
    pub progress: Option<Progress>,
    /// Whether the driver has said nothing about it for too long.
    pub stalled: bool,
}

/// Where an operation in flight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the core: no driver is connected and ready.
    Unserved,
    /// In the core: the infrastructure throttles, and creates of its provider pause for so long.
    Paused(Duration),
    /// In the core, waiting for its turn.
    Queued,
    /// With a driver.
    Sent,
    /// With a driver without its former session. If the driver does not come back within this time, the outcome counts
    /// as unknown.
    Lost(Duration),
}

/// A driver's report on a running operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Stable word, e.g. `ImagePull`.
    pub stage: String,
    /// For people.
    pub message: String,
    /// 0 to 100.
    pub percent: u32,
    /// The checkpoint to hand back after a failed attempt; may be empty.
    pub checkpoint: String,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => f.write_str(&self.stage),
            message => write!(f, "{}: {message}", self.stage),
        }
    }
}

/// An operation whose outcome is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The id of the operation.
    pub id: OperationId,
    /// The provider of the operation's driver, by the name that drivers use.
    pub provider: ProviderName,
    /// The verb.
    pub kind: OperationKind,
    /// Key of the intent.
    pub idempotency_key: String,
    /// The answer, or the failure.
    pub outcome: Outcome,
    /// The checkpoint to hand back next time, at most 4 KiB; `None`: not known.
    pub checkpoint: Option<String>,
}
