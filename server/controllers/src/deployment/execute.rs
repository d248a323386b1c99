//! Does what a plan says, in its order: marks before replicas, so that no set deletes another Machine than the chosen.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::deployment::plan::{NodeWrite, Plan, SetWrite};
use ostler_lifecycle::deployment::snapshot::Snapshot;
use ostler_lifecycle::deployment::template::identity;
use ostler_lifecycle::set::is_controlled_by;
use ostler_lifecycle::write::Same;
use serde_json::Value;
use tracing::debug;

use super::{Deployments, author, failed, namespace_of};
use crate::reconcile::PassError;
use crate::target::TargetOf;
use crate::watch::ObjectName;
use crate::writes::{Deletion, WriteError};

/// Concurrent writes to Nodes.
const NODES_AT_ONCE: usize = 8;

/// What was done.
pub(crate) struct Done {
    /// The deployment after its own write.
    pub(super) deployment: Arc<MachineDeployment>,
    /// The set for the template.
    pub(super) created: Created,
    /// Whether the Nodes say what they are to say.
    pub(super) nodes: Nodes,
}

/// How the writes to Nodes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nodes {
    /// All say it.
    Written,
    /// One of them changed meanwhile: kubelets write to them all the time.
    Changed,
    /// One of them could not be written.
    Failed,
}

/// How the creation of a set ended.
pub(super) enum Created {
    /// There was none.
    Nothing,
    /// It exists now.
    Done,
    /// Another object has its name.
    NameTaken,
    /// The API server refused it.
    Failed(String),
}

impl Deployments {
    pub(super) async fn perform(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<Done, PassError> {
        let deployment = &snapshot.deployment;
        if plan.concerns_machines() {
            self.is_current(deployment).await?;
        }
        for (machine, patch) in &plan.machines {
            self.mark(deployment, machine, patch).await?;
        }
        let nodes = self.write_to_nodes(deployment, &plan.nodes).await;
        for write in &plan.sets {
            self.write_set(deployment, write).await?;
        }
        let created = match &plan.create {
            Some(set) => self.create(deployment, set).await?,
            None => Created::Nothing,
        };
        for set in &plan.delete {
            self.delete(deployment, set).await?;
        }
        let deployment = match &plan.deployment {
            Some(patch) => self.write_deployment(deployment, patch).await?,
            None => Arc::clone(deployment),
        };
        Ok(Done { deployment, created, nodes })
    }

    async fn mark(
        &self,
        deployment: &MachineDeployment,
        machine: &Machine,
        patch: &Value,
    ) -> Result<(), PassError> {
        let api = self.writer.api::<Machine>(machine.metadata.namespace.as_deref().unwrap_or(""));
        match self.writer.patch(&api, machine.name(), patch).await {
            Ok(written) => {
                self.stores.machines.update(written, author(deployment));
                Ok(())
            }
            Err(WriteError::NotFound) => Ok(()),
            Err(failure) => Err(failed("cannot mark a machine for deletion", failure)),
        }
    }

    /// They are for schedulers and autoscalers, and the rollout goes on without.
    async fn write_to_nodes(&self, deployment: &MachineDeployment, nodes: &[NodeWrite]) -> Nodes {
        let mut worst = Nodes::Written;
        for some in nodes.chunks(NODES_AT_ONCE) {
            let done =
                join_all(some.iter().map(|write| self.write_to_node(deployment, write))).await;
            worst = done.into_iter().fold(worst, Nodes::max);
        }
        worst
    }

    async fn write_to_node(&self, deployment: &MachineDeployment, write: &NodeWrite) -> Nodes {
        let TargetOf::Cluster(target) = self.stores.targets.of(&write.machine) else {
            return Nodes::Written;
        };
        let writer = self.writer.to(&target.client);
        let api: Api<Node> = writer.cluster_api();
        let name = write.node.metadata.name.as_deref().unwrap_or_default();
        match writer.patch::<Node>(&api, name, &write.patch).await {
            Ok(written) => {
                target.nodes.update(written, author(deployment));
                Nodes::Written
            }
            Err(WriteError::NotFound) => Nodes::Written,
            Err(WriteError::Conflict) => Nodes::Changed,
            Err(error) => {
                debug!(node = name, %error, "cannot say on the node that it is being replaced");
                Nodes::Failed
            }
        }
    }

    async fn write_set(
        &self,
        deployment: &MachineDeployment,
        write: &SetWrite,
    ) -> Result<(), PassError> {
        let SetWrite { set, patch, event } = write;
        let api = self.writer.api::<MachineSet>(namespace_of(deployment));
        match self.writer.patch(&api, set.name(), &self.refreshed(set, patch)).await {
            Ok(written) => {
                self.stores.sets.update(written, author(deployment));
                if let Some(event) = event {
                    self.tell(deployment, event.clone());
                }
                Ok(())
            }
            // Of another set of that name the watch tells.
            Err(WriteError::NotFound) => Err(PassError::Outdated),
            Err(failure) => {
                self.note_unanswered(deployment, &failure);
                Err(failed("cannot write a machine set", failure))
            }
        }
    }

    /// The patch of a set on condition of its newest version, unless more than its status changed since it was seen: its
    /// own controller writes that all the time. One that is scaled down is another if more of its Machines are available
    /// now: those that were to go were perhaps among them.
    fn refreshed(&self, seen: &MachineSet, patch: &Value) -> Value {
        let mut patch = patch.clone();
        let wanted = patch.pointer("/spec/replicas").and_then(Value::as_i64);
        let is_lowered = wanted.is_some_and(|wanted| wanted < seen.spec.replicas().into());
        let available =
            |set: &MachineSet| set.status.as_ref().map_or(0, |it| it.available_replicas);
        let is_same = |newest: &MachineSet| {
            Same::AllButStatus(Duration::ZERO).holds(&seen.metadata, &newest.metadata)
                && !(is_lowered && available(newest) > available(seen))
        };
        let newest = self.stores.sets.get(&ObjectName::of(seen));
        if let Some(newest) = newest.filter(|newest| is_same(newest))
            && let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut)
        {
            let version = newest.metadata.resource_version.clone();
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        patch
    }

    /// Reads the deployment before anything is done to its sets and Machines: the cache may lag behind that of the sets,
    /// and so what was scaled up would be scaled back.
    async fn is_current(&self, deployment: &MachineDeployment) -> Result<(), PassError> {
        let api = self.writer.api::<MachineDeployment>(namespace_of(deployment));
        let live = self.writer.get(&api, deployment.name()).await;
        let live = live.map_err(|failure| failed("cannot read the deployment", failure))?;
        let Some(live) = live else { return Err(PassError::Gone) };
        PassError::unless_same(&live.metadata, &deployment.metadata)
    }

    /// The name follows from the template, so that a creation whose answer was lost is found by it.
    async fn create(
        &self,
        deployment: &MachineDeployment,
        set: &MachineSet,
    ) -> Result<Created, PassError> {
        let api = self.writer.api::<MachineSet>(namespace_of(deployment));
        match self.writer.create(&api, set).await {
            Ok(_) => {
                self.sent.created(deployment, set.name());
                Ok(Created::Done)
            }
            Err(WriteError::Conflict) => {
                let live = self.writer.get(&api, set.name()).await;
                let live = live.map_err(|failure| failed("cannot read a machine set", failure))?;
                Ok(match live {
                    // Gone meanwhile: the next pass creates it.
                    None => return Err(PassError::Outdated),
                    Some(live) if is_the_same(deployment, set, &live) => {
                        self.sent.created(deployment, set.name());
                        Created::Done
                    }
                    Some(_) => Created::NameTaken,
                })
            }
            Err(failure @ (WriteError::NoAnswer | WriteError::TooManyRequests { .. })) => {
                self.note_unanswered(deployment, &failure);
                Err(failed("cannot create a machine set", failure))
            }
            Err(failure) => {
                self.note_unanswered(deployment, &failure);
                Ok(Created::Failed(failure.to_string()))
            }
        }
    }

    fn note_unanswered(&self, deployment: &MachineDeployment, failure: &WriteError) {
        if failure.may_have_happened() {
            self.sent.unanswered(deployment);
        }
    }

    /// One that is not kept may have been scaled up since it was seen, and would take its Machines along. With a deployment that
    /// is deleted goes whatever is its own: with `--cascade=orphan` the garbage collector has freed the set, which the cache
    /// may not show yet.
    async fn delete(
        &self,
        deployment: &MachineDeployment,
        set: &MachineSet,
    ) -> Result<(), PassError> {
        let api = self.writer.api::<MachineSet>(namespace_of(deployment));
        let mut version = set.metadata.resource_version.as_deref();
        if deployment.is_deleting() {
            let live = self.writer.get(&api, set.name()).await;
            let live = live.map_err(|failure| failed("cannot read a machine set", failure))?;
            if !live.is_some_and(|live| is_controlled_by(&live.metadata, deployment.uid())) {
                return Ok(());
            }
            version = None;
        }
        let only = Deletion { uid: Some(set.uid()), version, ..Deletion::default() };
        match self.writer.delete(&api, set.name(), only).await {
            Ok(()) | Err(WriteError::NotFound) => Ok(()),
            Err(failure) => Err(failed("cannot delete a machine set", failure)),
        }
    }

    async fn write_deployment(
        &self,
        deployment: &MachineDeployment,
        patch: &Value,
    ) -> Result<Arc<MachineDeployment>, PassError> {
        let api = self.writer.api::<MachineDeployment>(namespace_of(deployment));
        match self.writer.patch(&api, deployment.name(), patch).await {
            Ok(written) => {
                self.stores.deployments.update(written.clone(), author(deployment));
                Ok(Arc::new(written))
            }
            Err(failure) => Err(failed("cannot write the deployment", failure)),
        }
    }
}

/// Whether a set that exists is the one that was to be created. One that is being deleted creates no Machines.
fn is_the_same(deployment: &MachineDeployment, set: &MachineSet, live: &MachineSet) -> bool {
    !live.is_deleting()
        && is_controlled_by(&live.metadata, deployment.uid())
        && identity(&live.spec.template) == identity(&set.spec.template)
}
