//! The controller of MachineDeployments. [`ostler_lifecycle::deployment`] makes the decisions.

mod metrics;
mod observe;
mod triggers;

pub(crate) use metrics::register_deployments;

use std::sync::Arc;

use ostler_lifecycle::deployment::snapshot::Snapshot;
use ostler_lifecycle::deployment::{DeploymentReport, plan};
use ostler_lifecycle::write::{Object, Plan};

use crate::fleet::{FleetKind, Tools};
use crate::handover::Handover;
use crate::kind::PassError;
use crate::watch::ObjectName;

/// Reconciles MachineDeployments.
pub(crate) struct Deployments {
    pub(crate) tools: Tools,
    pub(crate) handover: Handover,
}

impl FleetKind for Deployments {
    const NAME: &'static str = "MachineDeployment";
    type Snapshot = Snapshot;
    type Report = DeploymentReport;

    fn tools(&self) -> &Tools {
        &self.tools
    }

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(deployment) = self.tools.stores.deployments.get(name) else { return Ok(None) };
        match self.unsure(&deployment).await? {
            Some(wait) => Err(PassError::NotYet(wait)),
            None => Ok(Some(self.snapshot(name, deployment))),
        }
    }

    fn plan(snapshot: &Snapshot) -> Plan<DeploymentReport> {
        plan(snapshot)
    }

    fn own(snapshot: &Snapshot) -> Object {
        Object::Deployment(Arc::clone(&snapshot.deployment))
    }
}

#[cfg(test)]
mod tests;
