//! The MachineReserve controller. [`ostler_lifecycle::reserve`] makes the decisions.

mod given;
mod metrics;
mod observe;
mod triggers;

pub(crate) use given::Given;
pub(crate) use metrics::register_reserves;

use std::sync::Arc;

use ostler_lifecycle::reserve::{ReserveReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Plan};

use crate::fleet::{FleetKind, Tools};
use crate::handover::Handover;
use crate::kind::PassError;
use crate::watch::ObjectName;

/// Reconciles MachineReserves.
pub(crate) struct Reserves {
    pub(crate) tools: Tools,
    pub(crate) given: Arc<Given>,
    pub(crate) handover: Handover,
}

impl FleetKind for Reserves {
    const NAME: &'static str = "MachineReserve";
    type Snapshot = Snapshot;
    type Report = ReserveReport;

    fn tools(&self) -> &Tools {
        &self.tools
    }

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan<ReserveReport> {
        plan(snapshot)
    }

    fn own(snapshot: &Snapshot) -> Object {
        Object::Reserve(Arc::clone(&snapshot.reserve))
    }
}
