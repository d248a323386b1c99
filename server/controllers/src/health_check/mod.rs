//! The MachineHealthCheck controller. [`ostler_lifecycle::health_check`] makes the decisions.
//!
//! It writes marks on Machines, each on condition of the version that the decision was made from, and the status of the
//! check. The Machine controller does the rest.

mod metrics;
mod observe;
mod triggers;

pub(crate) use metrics::{CheckMetrics, register_checks};

use std::sync::Arc;

use ostler_api::machine_health_check::UnhealthyMark;
use ostler_api::names::annotation::UNHEALTHY;
use ostler_lifecycle::health_check::{CheckReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Part, Plan, Verb, Write};

use crate::api_health::ApiHealth;
use crate::client::WriteError;
use crate::fleet::{FleetKind, Tools};
use crate::kind::PassError;
use crate::watch::ObjectName;

/// Reconciles MachineHealthChecks.
pub(crate) struct HealthChecks {
    pub(crate) tools: Tools,
    pub(crate) api_health: Arc<ApiHealth>,
    pub(crate) metrics: CheckMetrics,
}

impl FleetKind for HealthChecks {
    const NAME: &'static str = "MachineHealthCheck";
    type Snapshot = Snapshot;
    type Report = CheckReport;

    fn tools(&self) -> &Tools {
        &self.tools
    }

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        Ok(self.gather(name))
    }

    fn plan(snapshot: &Snapshot) -> Plan<CheckReport> {
        plan(snapshot)
    }

    fn own(snapshot: &Snapshot) -> Object {
        // A deleted check leaves only marks on Machines, so the writes are about a Machine.
        let left = || Object::Machine(snapshot.left.first().cloned().unwrap_or_default());
        snapshot.check.clone().map_or_else(left, Object::Check)
    }

    fn answered(
        &self,
        _: &Snapshot,
        (part, write): (Part, &Write),
        answer: Result<(), &WriteError>,
    ) {
        let (Part::Mark, Verb::Patch(patch), Ok(())) = (part, &write.verb, answer) else { return };
        let marks = patch.pointer("/metadata/annotations");
        let mark = marks.and_then(|marks| marks.get(UNHEALTHY)?.as_str());
        if let Some(Ok(mark)) = mark.map(serde_json::from_str::<UnhealthyMark>) {
            self.metrics.count(&mark.reason);
        }
    }
}
