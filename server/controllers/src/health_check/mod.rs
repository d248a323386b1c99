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
use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand, Notes};
use crate::kind::{Kind, PassError, Passed};
use crate::stores::Stores;
use crate::watch::ObjectName;

/// Reconciles MachineHealthChecks.
pub(crate) struct HealthChecks {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) api_health: Arc<ApiHealth>,
    pub(crate) metrics: CheckMetrics,
}

impl Kind for HealthChecks {
    const NAME: &'static str = "MachineHealthCheck";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan<CheckReport>;
    type Done = Applied;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        Ok(self.gather(name))
    }

    fn plan(snapshot: &Snapshot) -> Plan<CheckReport> {
        plan(snapshot)
    }

    fn describe(plan: &Plan<CheckReport>) -> String {
        plan.describe()
    }

    async fn execute(&self, of: &Snapshot, plan: &Plan<CheckReport>) -> Result<Applied, PassError> {
        self.hand(of).apply(&plan.writes, &self.metrics).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan<CheckReport>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        self.hand(&snapshot).record(plan, done).await
    }
}

impl HealthChecks {
    /// A deleted check leaves only marks on Machines, so the writes are about a Machine.
    fn hand(&self, snapshot: &Snapshot) -> Hand<'_> {
        let Self { writer, stores, recorder, .. } = self;
        let check = snapshot.check.clone().map(Object::Check);
        let left = snapshot.left.first().cloned().unwrap_or_default();
        let own = check.unwrap_or(Object::Machine(left));
        Hand { writer, stores, recorder, sessions: None, by: Self::NAME, own }
    }
}

impl Notes for CheckMetrics {
    fn answered(&self, part: Part, write: &Write, answer: Result<(), &WriteError>) {
        let (Part::Mark, Verb::Patch(patch), Ok(())) = (part, &write.verb, answer) else { return };
        let marks = patch.pointer("/metadata/annotations");
        let mark = marks.and_then(|marks| marks.get(UNHEALTHY)?.as_str());
        if let Some(Ok(mark)) = mark.map(serde_json::from_str::<UnhealthyMark>) {
            self.count(&mark.reason);
        }
    }
}
