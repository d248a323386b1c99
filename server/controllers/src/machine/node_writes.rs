//! Writes to the Nodes of a machine, each on condition of the version that was planned from.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::core::ClusterResourceScope;
use kube::{Api, Resource};
use ostler_api::Uid;
use ostler_api::machine::DeletionCause;
use ostler_api::names::{finalizer, label, node_condition, taint};
use ostler_lifecycle::plan::{NodePatch, NodeStatusPatch, Performed};
use ostler_lifecycle::snapshot::Snapshot;
use serde_json::{Map, Value, json};

use super::Machines;
use super::execute::{Change, Executed};
use crate::client::{Deletion, Typed, WriteError};
use crate::kind::Kind as _;
use crate::watch::Author;

/// The Node of this name in the snapshot.
fn seen<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Node, WriteError> {
    let all = snapshot.node.all().into_iter();
    let found =
        all.chain(snapshot.node.main()).find(|it| it.metadata.name.as_deref() == Some(name));
    found.map(AsRef::as_ref).ok_or(WriteError::NotFound)
}

impl Machines {
    pub(super) async fn patch_node(
        &self,
        snapshot: &Snapshot,
        done: &mut Executed,
        patch: &NodePatch,
    ) -> Result<(), WriteError> {
        // The patch was planned from this very Node; another Node of that name is not ours.
        let node = seen(snapshot, &patch.name)?;
        let change = node_change(node, patch, snapshot.machine.name());
        let change = change.on_condition(node.metadata.resource_version.as_deref());
        let target = self.target(snapshot)?;
        let writer = self.writer.to(&target.client);
        let api: Api<Node> = writer.cluster_api();
        let written = writer.patch(&api, &patch.name, &change).await?;
        let version = written.metadata.resource_version.clone();
        done.node_versions.extend(version.map(|version| (patch.name.clone(), version)));
        target.nodes.update(written, Author::new(Self::NAME, snapshot.machine.as_ref()));
        done.changed = true;
        Ok(())
    }

    pub(super) async fn patch_node_status(
        &self,
        snapshot: &Snapshot,
        done: &mut Executed,
        patch: &NodeStatusPatch,
    ) -> Result<(), WriteError> {
        let node = seen(snapshot, &patch.name)?;
        let change = node_status_change(patch, node.metadata.resource_version.as_deref());
        let target = self.target(snapshot)?;
        let writer = self.writer.to(&target.client);
        let api: Api<Node> = writer.cluster_api();
        let written = writer.patch_status(&api, &patch.name, Patch::Strategic(&change)).await?;
        target.nodes.update(written, Author::new(Self::NAME, snapshot.machine.as_ref()));
        done.changed = true;
        Ok(())
    }

    /// The only read that no cache can replace.
    pub(super) async fn confirm_node(
        &self,
        snapshot: &Snapshot,
        name: &str,
        version: Option<&str>,
    ) -> Result<(), WriteError> {
        let writer = self.writer.to(&self.target(snapshot)?.client);
        let api: Api<Node> = writer.cluster_api();
        // The plan does not see Nodes of other Machines: here such a Node counts as absent, too.
        let hidden = |node: &Node| self.stores.is_node_of_another(&snapshot.machine, node);
        let node = writer.get(&api, name).await?.filter(|node| !hidden(node));
        let same = match &node {
            Some(node) => version.is_some() && node.metadata.resource_version.as_deref() == version,
            None => version.is_none(),
        };
        if same { Ok(()) } else { Err(WriteError::Conflict) }
    }

    /// Deletes a Node, or a VolumeAttachment of a Node, in the cluster that the Machine joined.
    pub(super) async fn delete_in_target<K>(
        &self,
        snapshot: &Snapshot,
        name: &str,
        uid: &Uid,
    ) -> Result<(), WriteError>
    where
        K: Typed + Resource<Scope = ClusterResourceScope>,
    {
        let writer = self.writer.to(&self.target(snapshot)?.client);
        let api: Api<K> = writer.cluster_api();
        writer.delete(&api, name, Deletion { uid: Some(uid.as_str()), ..Deletion::default() }).await
    }

    /// The API server refused to delete a Node (409): checks which Node has the name now.
    pub(super) async fn why_not_deleted(
        &self,
        snapshot: &Snapshot,
        name: &str,
        uid: &Uid,
    ) -> Performed {
        let there = match self.target(snapshot) {
            Ok(target) => {
                let writer = self.writer.to(&target.client);
                writer.get(&writer.cluster_api::<Node>(), name).await
            }
            Err(lacking) => Err(lacking),
        };
        match there {
            Ok(there) => {
                let there = there.and_then(|node| node.metadata.uid);
                Performed::of_refused_node_deletion(uid.as_str(), there.as_deref())
            }
            Err(failure) => Performed::Failed(format!("the node could not be read: {failure}")),
        }
    }

    /// Marks the Node with the deletion of its Machine, on condition of the newest version that this pass has seen.
    pub(super) async fn mark_node(
        &self,
        snapshot: &Snapshot,
        done: &Executed,
        name: &str,
        cause: &DeletionCause,
    ) -> Result<(), WriteError> {
        let seen = seen(snapshot, name)?.metadata.resource_version.clone();
        let version = done.node_versions.get(name).cloned().or(seen);
        let target = self.target(snapshot)?;
        let writer = self.writer.to(&target.client);
        let api: Api<Node> = writer.cluster_api();
        let patch = termination(cause, snapshot.now, version.as_deref());
        let written = writer.patch_status(&api, name, Patch::Strategic(&patch)).await?;
        target.nodes.update(written, Author::new(Self::NAME, snapshot.machine.as_ref()));
        Ok(())
    }
}

/// The condition `Terminating` of a Node.
fn termination(cause: &DeletionCause, now: Timestamp, version: Option<&str>) -> Value {
    let condition = json!({
        "type": node_condition::TERMINATING, "status": "True",
        "reason": cause.as_str(), "message": cause.message(),
        "lastTransitionTime": Time(now), "lastHeartbeatTime": Time(now),
    });
    json!({
        "metadata": { "resourceVersion": version },
        "status": { "conditions": [condition] },
    })
}

fn node_change(node: &Node, patch: &NodePatch, machine: &str) -> Change {
    let mut change = Change::default();
    if patch.add_finalizer || patch.remove_finalizer {
        let mut all = node.metadata.finalizers.clone().unwrap_or_default();
        all.retain(|name| name != finalizer::NODE);
        all.extend(patch.add_finalizer.then(|| finalizer::NODE.to_owned()));
        change = change.metadata("finalizers", json!(all));
    }
    let mut labels = patch.labels.clone();
    if patch.label_machine {
        labels.insert(label::MACHINE_NAME.to_owned(), Some(machine.to_owned()));
    }
    if !labels.is_empty() {
        change = change.metadata("labels", json!(labels));
    }
    if !patch.annotations.is_empty() {
        change = change.metadata("annotations", json!(patch.annotations));
    }
    if patch.cordon {
        change = change.spec("unschedulable", json!(true));
    } else if patch.uncordon {
        change = change.spec("unschedulable", Value::Null);
    }
    if patch.remove_not_ready_taint || patch.taints.is_some() {
        let there = || node.spec.as_ref().and_then(|spec| spec.taints.clone());
        let mut taints = patch.taints.clone().or_else(there).unwrap_or_default();
        taints.retain(|one| !patch.remove_not_ready_taint || one.key != taint::INSTANCE_NOT_READY);
        change = change.spec("taints", json!(taints));
    }
    change
}

/// A strategic merge patch: the key of a condition is its type.
fn node_status_change(patch: &NodeStatusPatch, version: Option<&str>) -> Value {
    let mut status = Map::new();
    if !patch.capacity.is_empty() {
        status.insert("capacity".to_owned(), json!(patch.capacity));
    }
    if !patch.conditions.is_empty() {
        status.insert("conditions".to_owned(), json!(patch.conditions));
    }
    json!({ "metadata": { "resourceVersion": version }, "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_patch_holds_the_planned_changes_and_keeps_those_of_others() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "finalizers": ["other/one", finalizer::NODE] },
            "spec": { "taints": [
                { "key": taint::INSTANCE_NOT_READY, "effect": "NoSchedule" },
                { "key": "other", "effect": "NoExecute" }
            ] }
        }))
        .unwrap();
        let change = |patch: NodePatch| node_change(&node, &patch, "m").on_condition(Some("7"));
        let leave = NodePatch { remove_finalizer: true, cordon: true, ..NodePatch::default() };
        assert_eq!(
            change(leave),
            json!({
                "metadata": { "finalizers": ["other/one"], "resourceVersion": "7" },
                "spec": { "unschedulable": true }
            })
        );
        let join =
            NodePatch { remove_not_ready_taint: true, label_machine: true, ..NodePatch::default() };
        assert_eq!(
            change(join),
            json!({
                "metadata": {
                    "labels": { "node.gardener.cloud/machine-name": "m" }, "resourceVersion": "7"
                },
                "spec": { "taints": [{ "key": "other", "effect": "NoExecute" }] }
            })
        );
    }
}
