//! Records of streams, sessions and providers.

use std::collections::{BTreeSet, HashSet};

use ostler_proto::v1alpha1::{Readiness, RoleKind};
use tokio::time::Instant;

use super::queue::Queue;
use super::{OpId, SessionKey};
use crate::Principal;
use crate::session::hello::Introduction;
use crate::session::machine::Machine;

/// A stream without a Hello.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) machine: Machine,
    pub(crate) principal: Principal,
    pub(crate) peer: String,
}

/// A live session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) machine: Machine,
    /// Name of the principal.
    pub(crate) principal: String,
    pub(crate) peer: String,
    /// The id that the driver knows.
    pub(crate) id: String,
    pub(crate) driver: Introduction,
    pub(crate) role: RoleKind,
    pub(crate) readiness: Readiness,
    /// Since when it is not ready any more; `None` if it never was.
    pub(crate) unready: Option<Instant>,
    /// How many operations may be in flight.
    pub(crate) credit: usize,
    pub(crate) in_flight: HashSet<OpId>,
    pub(crate) since: Instant,
    /// When the driver last answered a heartbeat, or said Hello.
    pub(crate) heard: Instant,
    /// How far the clock of the driver was ahead at Hello, if it said its time.
    pub(crate) clock_skew: Option<prost_types::Duration>,
    /// Operations in a row that were not accepted in time.
    pub(crate) not_accepted: u32,
}

impl Session {
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.readiness == Readiness::Draining
    }

    pub(crate) fn has_credit(&self) -> bool {
        self.is_ready() && self.in_flight.len() < self.credit
    }
}

/// A session that ended with mutations in flight.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) provider: String,
    pub(crate) principal: String,
    pub(crate) instance_id: String,
    pub(crate) operations: BTreeSet<OpId>,
    /// The stream itself ended, as it does when the driver's process dies.
    pub(crate) stream_ended: bool,
}

/// A provider that has sessions, or had some and still has operations.
#[derive(Debug, Default)]
pub(crate) struct Provider {
    /// The session that gets operations.
    pub(crate) active: Option<SessionKey>,
    /// Whether the controllers were told that operations are sent.
    pub(crate) announced: bool,
    pub(crate) queue: Queue,
}
