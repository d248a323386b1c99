//! The controller of MachineDeployments. [`ostler_lifecycle::deployment`] makes the decisions.

mod execute;
mod metrics;
mod observe;
mod sent;
mod triggers;

pub(crate) use metrics::register_deployments;
pub(crate) use sent::Sent;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::api::Patch;
use ostler_api::MachineDeployment;
use ostler_api::machine_deployment::MachineDeploymentStatus;
use ostler_lifecycle::deployment::plan::{Event, Plan, Reason};
use ostler_lifecycle::deployment::snapshot::Snapshot;
use ostler_lifecycle::deployment::{plan, status};
use ostler_lifecycle::time::until;
use serde_json::json;
use tracing::debug;

use self::execute::{Created, Done, Nodes};
use crate::clock::DebugClock;
use crate::events::{EventRecord, Recorder, Severity};
use crate::queue::Outcome;
use crate::reconcile::{Kind, PassError, Passed};
use crate::set::Handover;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::{Author, By, ObjectName};
use crate::writes::{WriteError, Writer};

/// When to write again to Nodes that changed meanwhile.
const NODES_AGAIN: Duration = Duration::from_millis(100);

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
    type Plan = Plan;
    type Done = Done;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(deployment) = self.stores.deployments.get(name) else { return Ok(None) };
        match self.unsure(&deployment).await? {
            Some(wait) => Err(PassError::NotYet(wait)),
            None => self.snapshot(name, deployment).map(Some),
        }
    }

    fn plan(snapshot: &Snapshot) -> Plan {
        plan(snapshot)
    }

    fn describe(plan: &Plan) -> String {
        let created = plan.create.as_ref().map(|set| set.name()).unwrap_or_default();
        let Plan { machines, nodes, sets, delete, .. } = plan;
        format!(
            "{} machines, {} nodes, {} sets; create {created:?}, delete {} sets",
            machines.len(),
            nodes.len(),
            sets.len(),
            delete.len()
        )
    }

    async fn execute(&self, snapshot: &Snapshot, plan: &Plan) -> Result<Done, PassError> {
        self.perform(snapshot, plan).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan,
        done: Done,
    ) -> Result<Passed, PassError> {
        let mut changes = plan.changes_anything();
        let Plan { mut status, events, create, created, next, .. } = plan;
        let created = created.filter(|_| matches!(done.created, Created::Done));
        for event in events.into_iter().chain(created) {
            self.tell(&done.deployment, event);
        }
        let mut failed = false;
        match done.created {
            Created::Nothing => {}
            Created::Done => {
                let set = create.as_ref().map(|set| set.name()).unwrap_or_default();
                status::created(&mut status, set, snapshot.now);
            }
            Created::NameTaken => {
                status::name_is_taken(&mut status);
                changes = true;
            }
            Created::Failed(why) => {
                failed = true;
                let reason = Reason::MachineSetCreateError;
                let note = format!("cannot create a machine set: {why}");
                status::creation_failed(&mut status, note.clone(), snapshot.now);
                self.tell(&done.deployment, Event { warning: true, reason, note });
            }
        }
        // Without the finalizer there may be nothing left to write to.
        if !done.deployment.is_deleting() || done.deployment.has_finalizer() {
            self.write_status(&snapshot, &done.deployment, &status).await?;
        }
        Ok(if failed || done.nodes == Nodes::Failed {
            Passed::Settled(Outcome::Failed)
        } else if done.nodes == Nodes::Changed {
            // Not before the cache has it.
            Passed::Settled(Outcome::Again(NODES_AGAIN))
        } else if changes {
            Passed::Changed
        } else {
            Passed::Settled(Outcome::Again(self.until(next, snapshot.now)))
        })
    }
}

impl Deployments {
    fn until(&self, next: Option<Timestamp>, now: Timestamp) -> Duration {
        let wait = next.map(|at| until(at, now));
        wait.unwrap_or(self.settings.resync).min(self.settings.resync)
    }

    async fn write_status(
        &self,
        snapshot: &Snapshot,
        deployment: &MachineDeployment,
        status: &MachineDeploymentStatus,
    ) -> Result<(), PassError> {
        let Some(patch) = status::patch(&snapshot.deployment, status) else { return Ok(()) };
        let version = &deployment.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": patch });
        let api = self.writer.api::<MachineDeployment>(namespace_of(deployment));
        match self.writer.patch_status(&api, deployment.name(), Patch::Merge(&patch)).await {
            Ok(written) => {
                self.stores.deployments.update(written, author(deployment));
                Ok(())
            }
            Err(failure) => Err(failed("cannot write the status", failure)),
        }
    }

    fn tell(&self, deployment: &MachineDeployment, event: Event) {
        let Event { warning, reason, note } = event;
        debug!(deployment = deployment.name(), reason = reason.name(), note, "event");
        self.recorder.record(EventRecord {
            regarding: reference(deployment),
            severity: if warning { Severity::Warning } else { Severity::Normal },
            reason: reason.name(),
            action: "Reconcile",
            note,
        });
    }
}

fn failed(what: &'static str, failure: WriteError) -> PassError {
    if matches!(failure, WriteError::Conflict) {
        PassError::Outdated
    } else if matches!(failure, WriteError::NotFound) {
        PassError::Gone
    } else {
        PassError::Api { what, source: failure }
    }
}

fn reference(deployment: &MachineDeployment) -> ObjectReference {
    deployment.object_ref(&())
}

fn author(deployment: &MachineDeployment) -> Author {
    Author::new(By::Deployment, deployment)
}

fn namespace_of(deployment: &MachineDeployment) -> &str {
    deployment.metadata.namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
