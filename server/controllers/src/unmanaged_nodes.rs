//! Removes the finalizer of Nodes that no Machine manages, and marks them. [`ostler_lifecycle::unmanaged_nodes`] makes the
//! decisions.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Resource};
use ostler_api::names::annotation::NOT_MANAGED;
use ostler_api::names::{finalizer, label};
use ostler_lifecycle::unmanaged_nodes::{NodeTask, plan};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::clock::DebugClock;
use crate::events::{EventRecord, Recorder, Severity};
use crate::queue::Outcome;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::target::Target;
use crate::watch::ObjectName;
use crate::writes::{WriteError, Writer};

/// Reconciles Nodes without a Machine.
pub(crate) struct UnmanagedNodes {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
}

impl UnmanagedNodes {
    /// Reconciles the Node of this name, in every cluster that has one.
    pub(crate) async fn reconcile(&self, name: ObjectName) -> Outcome {
        let mut outcome = Outcome::Done;
        for target in self.stores.targets.all() {
            let Some(node) = target.nodes.get(&name) else { continue };
            outcome = sooner(outcome, self.one(&target, &node).await);
        }
        outcome
    }

    async fn one(&self, target: &Target, node: &Node) -> Outcome {
        let now = (self.clock.0)();
        let timeout = self.settings.lifecycle.creation_timeout;
        match plan(node, self.has_machine(node), now, timeout) {
            NodeTask::Leave => Outcome::Done,
            NodeTask::LookAgain(at) => {
                Outcome::Again(Duration::try_from(at.duration_since(now)).unwrap_or_default())
            }
            NodeTask::LetGo { mark } => {
                let outcome = self.patch(target, node, release_patch(node, mark)).await;
                if outcome == Outcome::Done {
                    self.record_event(node, mark);
                }
                outcome
            }
            NodeTask::Unmark => {
                let unmarked = json!({ "annotations": { NOT_MANAGED: null } });
                self.patch(target, node, unmarked).await
            }
        }
    }

    /// Whether a Machine names this Node or is named by it. True if that is unknown.
    fn has_machine(&self, node: &Node) -> bool {
        let machines = &self.stores.machines;
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let id = id.filter(|id| !id.is_empty());
        let labels = node.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(label::MACHINE_NAME).map(String::as_str));
        let may_be_of = |machine: &str| {
            machines.find(MachineIndex::Name, machine).iter().any(|machine| {
                let theirs = machine.provider_id();
                theirs.is_none() || id.is_none() || theirs == id
            })
        };
        machines.has_unreadable()
            || !machines.find_names(MachineIndex::Node, name).is_empty()
            || id.is_some_and(|id| !machines.find_names(MachineIndex::ProviderId, id).is_empty())
            || may_be_of(name)
            || label.is_some_and(may_be_of)
    }

    /// Patches on condition of the version that was planned from, so that finalizers of other clients are never lost.
    async fn patch(&self, target: &Target, node: &Node, mut metadata: Value) -> Outcome {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Some(fields) = metadata.as_object_mut() {
            fields.insert("resourceVersion".to_owned(), json!(node.metadata.resource_version));
        }
        let writer = self.writer.to(target);
        let api: Api<Node> = writer.cluster_api();
        match writer.patch::<Node>(&api, name, &json!({ "metadata": metadata })).await {
            Ok(written) => {
                target.nodes.update(written);
                Outcome::Done
            }
            Err(WriteError::NotFound) => Outcome::Again(Duration::ZERO),
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(failure) => {
                warn!(node = name, error = %failure, "cannot release a node without a machine");
                Outcome::Failed
            }
        }
    }

    fn record_event(&self, node: &Node, mark: bool) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        info!(node = name, marked = mark, "no machine has this node; released it");
        self.recorder.record(EventRecord {
            regarding: node.object_ref(&()),
            severity: Severity::Normal,
            reason: "NodeNotManaged",
            action: "LetGo",
            note: format!("no machine has node {name}: it can be deleted"),
        });
    }
}

/// The earlier of two.
fn sooner(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Failed, _) | (_, Outcome::Failed) => Outcome::Failed,
        (Outcome::Done, other) => other,
        (one, Outcome::Done) => one,
        (Outcome::Again(one), Outcome::Again(other)) => Outcome::Again(one.min(other)),
    }
}

fn release_patch(node: &Node, mark: bool) -> Value {
    let mut finalizers = node.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != finalizer::NODE);
    let annotations = if mark { json!({ NOT_MANAGED: "1" }) } else { json!({}) };
    json!({ "finalizers": finalizers, "annotations": annotations })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_of_others_stay_on_a_released_node() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "finalizers": ["other/one", finalizer::NODE] }
        }))
        .unwrap();
        let marked = json!({ "finalizers": ["other/one"], "annotations": { NOT_MANAGED: "1" } });
        assert_eq!(release_patch(&node, true), marked);
        assert_eq!(
            release_patch(&node, false),
            json!({ "finalizers": ["other/one"], "annotations": {} })
        );
    }

    #[test]
    fn of_two_outcomes_the_sooner_counts() {
        let soon = Outcome::Again(Duration::from_secs(1));
        let late = Outcome::Again(Duration::from_secs(9));
        assert_eq!(sooner(late, soon), soon);
        assert_eq!(sooner(Outcome::Done, late), late);
        assert_eq!(sooner(Outcome::Failed, soon), Outcome::Failed);
    }
}
