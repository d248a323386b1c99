//! The controller of MachineDeployments. [`ostler_lifecycle::deployment`] makes the decisions.

mod metrics;
mod observe;
mod sent;
mod triggers;

pub(crate) use metrics::register_deployments;
pub(crate) use sent::Sent;

use std::sync::Arc;

use ostler_api::MachineDeployment;
use ostler_lifecycle::deployment::snapshot::Snapshot;
use ostler_lifecycle::deployment::{DeploymentReport, plan};
use ostler_lifecycle::write::{Object, Part, Plan, Remember, Write};

use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand, Unseen};
use crate::kind::{Kind, PassError, Passed};
use crate::set::Handover;
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
    pub(crate) sent: Sent,
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
        let own = Own { sent: &self.sent, deployment: &of.deployment };
        self.hand(&of.deployment).apply(&plan.writes, &own).await
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

/// The memory about a deployment's writes.
struct Own<'a> {
    sent: &'a Sent,
    deployment: &'a MachineDeployment,
}

impl Unseen for Own<'_> {
    fn answered(&self, _: Part, write: &Write, answer: Result<(), &WriteError>) {
        match (write.remember, answer) {
            (Remember::Created, Ok(())) => self.sent.created(self.deployment, write.of.name()),
            (Remember::Created | Remember::Answer, Err(error)) if error.may_have_happened() => {
                self.sent.unanswered(self.deployment);
            }
            (_, _) => {}
        }
    }
}

#[cfg(test)]
mod tests;
