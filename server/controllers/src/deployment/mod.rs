//! The controller of MachineDeployments. [`ostler_lifecycle::deployment`] makes the decisions.

mod metrics;
mod observe;
mod triggers;

pub(crate) use metrics::register_deployments;

use std::sync::Arc;

use ostler_api::MachineDeployment;
use ostler_lifecycle::deployment::snapshot::Snapshot;
use ostler_lifecycle::deployment::{DeploymentReport, plan};
use ostler_lifecycle::write::{Object, Plan};

use crate::client::Writer;
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand};
use crate::handover::Handover;
use crate::kind::{Kind, PassError, Passed};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// Reconciles MachineDeployments.
pub(crate) struct Deployments {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) handover: Handover,
}

impl Kind for Deployments {
    const NAME: &'static str = "MachineDeployment";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan<DeploymentReport>;
    type Done = Applied;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(deployment) = self.stores.deployments.get(name) else { return Ok(None) };
        match self.unsure(&deployment).await? {
            Some(wait) => Err(PassError::NotYet(wait)),
            None => Ok(Some(self.snapshot(name, deployment))),
        }
    }

    fn plan(snapshot: &Snapshot) -> Plan<DeploymentReport> {
        plan(snapshot)
    }

    fn describe(plan: &Plan<DeploymentReport>) -> String {
        plan.describe()
    }

    async fn execute(
        &self,
        of: &Snapshot,
        plan: &Plan<DeploymentReport>,
    ) -> Result<Applied, PassError> {
        self.hand(&of.deployment).apply(&plan.writes, &()).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan<DeploymentReport>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        self.hand(&snapshot.deployment).record(plan, done).await
    }
}

impl Deployments {
    fn hand(&self, deployment: &Arc<MachineDeployment>) -> Hand<'_> {
        let Self { writer, stores, recorder, .. } = self;
        let own = Object::Deployment(Arc::clone(deployment));
        Hand { writer, stores, recorder, sessions: None, by: Self::NAME, own }
    }
}

#[cfg(test)]
mod tests;
