//! A status that goes with the next write of the Machine; `deferral.rs` has the rule.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine::MachineStatus;

use crate::{plan::Event, time::after};

/// How long a status waits for the next write. Long enough for a fast driver to answer, short enough that people see a
/// slow driver at work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A status that the Machine has for the core and not in the API.
#[derive(Debug, Clone, PartialEq)]
pub struct Unwritten {
    /// The status in the API. The unwritten status is void once the API has another one; the events are not.
    pub stored: Option<MachineStatus>,
    /// The status to write.
    pub status: MachineStatus,
    /// The events of the status.
    pub events: Vec<Event>,
    /// Since when.
    pub since: Timestamp,
}

/// When a status that has waited since then is written at the latest.
pub(crate) fn due(since: Timestamp) -> Timestamp {
    after(since, PATIENCE)
}
