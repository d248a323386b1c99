//! The Machine controller. [`ostler_lifecycle`] makes every decision; the shape is the same as in every [`Kind`].

mod evict;
mod execute;
mod metrics;
mod node_writes;
mod observe;
mod operation;
mod own_pool;
mod record;
mod replacements;
mod state;
mod token;
mod triggers;
mod volumes;

pub(crate) use metrics::register_machines;
pub(crate) use observe::{HOLD_PATIENCE, compared_node_view, node_view};
pub(crate) use state::State;
pub(crate) use triggers::Shared;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use ostler_api::Machine;
use ostler_api::operation::Term;
use ostler_lifecycle::machine;
use ostler_lifecycle::plan::{Action, Plan};
use ostler_lifecycle::snapshot::Snapshot;
use ostler_sessions::Sessions;

use self::execute::Executed;
use crate::api_health::ApiHealth;
use crate::bootstrap::Configs;
use crate::client::Writer;
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hot_update::Reviewer;
use crate::kind::{Kind, PassError, Passed};
use crate::left_groups::LeftGroups;
use crate::metrics::{AnswerMetrics, StepMetrics};
use crate::orphans::OrphanScans;
use crate::queue::Queue;
use crate::schemas::Schemas;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// Reconciles machines.
pub(crate) struct Machines {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) state: Arc<State>,
    pub(crate) configs: Arc<Configs>,
    pub(crate) answers: AnswerMetrics,
    pub(crate) scans: OrphanScans,
    pub(crate) left: LeftGroups,
    pub(crate) steps: StepMetrics,
    pub(crate) term: Term,
    pub(crate) api_health: Arc<ApiHealth>,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) reviewer: Arc<Reviewer>,
    /// Wakes machines blocked by this machine.
    pub(crate) queue: Arc<Queue<ObjectName>>,
}

impl Kind for Machines {
    const NAME: &'static str = "Machine";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan;
    type Done = Executed;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.snapshot(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan {
        machine::plan(snapshot)
    }

    fn describe(plan: &Plan) -> String {
        let actions: Vec<_> = plan.actions.iter().map(Action::name).collect();
        format!("{}, then {:?}", actions.join(" "), plan.next)
    }

    async fn execute(&self, snapshot: &Snapshot, plan: &Plan) -> Result<Executed, PassError> {
        self.perform_all(snapshot, plan).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan,
        done: Executed,
    ) -> Result<Passed, PassError> {
        self.write_down(&snapshot, &plan, done).await
    }

    fn on_error(&self, error: &PassError) {
        match error {
            PassError::Pruned => self.schemas.check_again(),
            PassError::Api { .. } => self.api_health.check_again(),
            PassError::Outdated | PassError::Gone | PassError::NotYet(_) => {}
        }
    }
}

fn reference(machine: &Machine) -> ObjectReference {
    machine.object_ref(&())
}

#[cfg(test)]
mod tests;
