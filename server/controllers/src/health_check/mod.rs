//! The MachineHealthCheck controller. [`ostler_lifecycle::health_check`] makes the decisions.
//!
//! It writes marks on Machines, each on condition of the version that the decision was made from, and the status of the
//! check. The Machine controller does the rest.

mod execute;
mod metrics;
mod observe;
mod triggers;

pub(crate) use metrics::{CheckMetrics, register_checks};

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use ostler_lifecycle::health_check::{Plan, Snapshot, plan};
use ostler_lifecycle::time::until;

use crate::api_health::ApiHealth;
use crate::clock::DebugClock;
use crate::events::{EventRecord, Recorder, Severity};
use crate::queue::Outcome;
use crate::reconcile::{Kind, PassError, Passed};
use crate::stores::Stores;
use crate::watch::ObjectName;
use crate::writes::Writer;

/// The least time between two passes without an event.
const PAUSE: Duration = Duration::from_secs(1);

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
    type Plan = Plan;
    /// Whether every Machine was written to.
    type Done = bool;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        Ok(self.gather(name))
    }

    fn plan(snapshot: &Snapshot) -> Plan {
        plan(snapshot)
    }

    fn describe(plan: &Plan) -> String {
        format!("mark {}, unmark {}", plan.mark.len(), plan.unmark.len())
    }

    async fn execute(&self, snapshot: &Snapshot, plan: &Plan) -> Result<bool, PassError> {
        self.carry_out(snapshot, plan).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan,
        done: bool,
    ) -> Result<Passed, PassError> {
        if let (Some(check), Some(status)) = (&snapshot.check, &plan.status) {
            self.put(check, status).await?;
            for news in &plan.news {
                self.tell(check.as_ref(), news.reason, news.message.clone());
            }
        }
        if !done {
            return Ok(Passed::Settled(Outcome::Failed));
        }
        let wait = plan.again.map(|at| until(at, snapshot.now).max(PAUSE));
        Ok(Passed::Settled(wait.map_or(Outcome::Done, Outcome::Again)))
    }
}

impl HealthChecks {
    fn tell(&self, about: &impl Resource<DynamicType = ()>, reason: &'static str, note: String) {
        let (regarding, severity) = (about.object_ref(&()), Severity::Warning);
        let action = "Check";
        self.recorder.record(EventRecord { regarding, severity, reason, action, note });
    }
}
