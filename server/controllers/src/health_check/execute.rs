//! Writes marks and the status.

use futures::future::join_all;
use kube::api::Patch;
use ostler_api::machine_health_check::{MachineHealthCheckStatus, UnhealthyMark};
use ostler_api::names::annotation::UNHEALTHY;
use ostler_api::{Machine, MachineHealthCheck};
use ostler_lifecycle::health_check::{Plan, Snapshot, status_patch};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::HealthChecks;
use crate::reconcile::PassError;
use crate::watch::{Author, By};
use crate::writes::WriteError;

impl HealthChecks {
    /// Whether every Machine was written to.
    pub(super) async fn carry_out(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<bool, PassError> {
        if let (Some(check), false) = (&snapshot.check, plan.mark.is_empty()) {
            self.is_current(check).await?;
        }
        let unmarked = plan.unmark.iter().map(async |machine| {
            let done = self.write(machine, None).await;
            info!(machine = machine.name(), check = snapshot.name, done, "mark removed");
            done
        });
        let marked = plan.mark.iter().map(async |(machine, mark)| {
            let Ok(text) = serde_json::to_string(mark) else { return true };
            let done = self.write(machine, Some(&text)).await;
            if done {
                self.note(machine, mark);
            }
            done
        });
        let one = join_all(unmarked).await.into_iter().all(|done| done);
        let other = join_all(marked).await.into_iter().all(|done| done);
        Ok(one && other)
    }

    fn note(&self, machine: &Machine, mark: &UnhealthyMark) {
        let UnhealthyMark { check, reason, message, .. } = mark;
        info!(machine = machine.name(), %check, %reason, "marked unhealthy");
        self.metrics.count(reason);
        let note = format!("machine health check {check}: {reason}: {message}");
        self.tell(machine, "MachineMarkedUnhealthy", note);
    }

    /// Puts a mark on a Machine, or takes it away. One that changed since the decision is looked at again.
    async fn write(&self, machine: &Machine, mark: Option<&str>) -> bool {
        let version = &machine.metadata.resource_version;
        let patch = json!({
            "metadata": { "resourceVersion": version, "annotations": { UNHEALTHY: mark } }
        });
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        let api = self.writer.api::<Machine>(namespace);
        match self.writer.patch::<Machine>(&api, machine.name(), &patch).await {
            Ok(written) => {
                let author = Author::new(By::HealthCheck, machine);
                self.stores.machines.update(written, author);
                true
            }
            Err(WriteError::NotFound) => true,
            Err(WriteError::Conflict) => false,
            Err(error) => {
                warn!(machine = machine.name(), %error, "cannot write what a health check found");
                false
            }
        }
    }

    /// Reads the check before any Machine is marked: the cache may lag.
    async fn is_current(&self, check: &MachineHealthCheck) -> Result<(), PassError> {
        let namespace = check.metadata.namespace.as_deref().unwrap_or_default();
        let api = self.writer.api::<MachineHealthCheck>(namespace);
        let what = "cannot read a machine health check";
        let live = self.writer.get(&api, check.name()).await;
        let live = live.map_err(|source| PassError::Api { what, source })?;
        let Some(live) = live else { return Err(PassError::Gone) };
        PassError::unless_same(&live.metadata, &check.metadata)
    }

    pub(super) async fn put(
        &self,
        check: &MachineHealthCheck,
        status: &MachineHealthCheckStatus,
    ) -> Result<(), PassError> {
        let Some(patch) = status_patch(check.status.as_ref(), status) else { return Ok(()) };
        let version = &check.metadata.resource_version;
        let patch: Value = json!({ "metadata": { "resourceVersion": version }, "status": patch });
        let namespace = check.metadata.namespace.as_deref().unwrap_or_default();
        let api = self.writer.api::<MachineHealthCheck>(namespace);
        let written = self.writer.patch_status(&api, check.name(), Patch::Merge(&patch)).await;
        let what = "cannot write the status of a machine health check";
        let written = written.map_err(|error| PassError::of_write(what, error))?;
        self.stores.checks.update(written, Author::new(By::HealthCheck, check));
        Ok(())
    }
}
