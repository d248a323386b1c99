//! Removes the finalizer of Nodes that no Machine manages, and marks them. [`ostler_lifecycle::unmanaged_nodes`] makes the
//! decisions.

mod triggers;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Resource};
use ostler_api::names::annotation::{CLUSTER_ID, NOT_MANAGED};
use ostler_api::names::{finalizer, label};
use ostler_api::{Machine, ProviderId};
use ostler_lifecycle::cluster::ClusterIds;
use ostler_lifecycle::machine::has_own_instance;
use ostler_lifecycle::node::{joined_as, provider_id};
use ostler_lifecycle::time::until;
use ostler_lifecycle::unmanaged_nodes::{NodeTask, Tie, is_of_another, plan};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::kind::{Kind, PassError, Passed};
use crate::queue::Outcome;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::target::Target;
use crate::telling::tell;
use crate::watch::{Author, ObjectName};
use ostler_lifecycle::plan::{Event, EventAction, EventReason};

/// Reconciles Nodes without a Machine.
pub(crate) struct UnmanagedNodes {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) cluster: ClusterIds,
}

/// The Nodes of the same name, from every cluster with such a Node, and the time.
pub(crate) struct Observed {
    nodes: Vec<Found>,
    cluster: ClusterIds,
    now: Timestamp,
    creation_timeout: Duration,
}

/// A Node and its cluster.
struct Found {
    target: Arc<Target>,
    node: Arc<Node>,
    tie: Tie,
}

impl Kind for UnmanagedNodes {
    const NAME: &'static str = "Node";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = Vec<NodeTask>;
    type Done = Vec<Option<Outcome>>;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        let found = |target: Arc<Target>| {
            let node = target.nodes.get(name)?;
            Some(Found { tie: tie(&self.stores, &node), target, node })
        };
        Ok(Some(Observed {
            nodes: self.stores.targets.all().into_iter().filter_map(found).collect(),
            cluster: self.cluster.clone(),
            now: (self.clock.0)(),
            creation_timeout: self.settings.lifecycle.creation_timeout,
        }))
    }

    fn plan(Observed { nodes, cluster, now, creation_timeout }: &Observed) -> Vec<NodeTask> {
        let task = |it: &Found| plan(&it.node, it.tie, cluster, *now, *creation_timeout);
        nodes.iter().map(task).collect()
    }

    fn describe(plan: &Vec<NodeTask>) -> String {
        format!("{plan:?}")
    }

    async fn execute(
        &self,
        observed: &Observed,
        plan: &Vec<NodeTask>,
    ) -> Result<Vec<Option<Outcome>>, PassError> {
        self.perform(observed, plan).await
    }

    async fn record(
        &self,
        observed: Observed,
        plan: Vec<NodeTask>,
        done: Vec<Option<Outcome>>,
    ) -> Result<Passed, PassError> {
        for ((found, task), outcome) in observed.nodes.iter().zip(&plan).zip(&done) {
            if let (NodeTask::Release { mark }, Some(Outcome::Done)) = (task, outcome) {
                self.record_event(found, *mark);
            }
        }
        Ok(Passed::Settled(done.into_iter().flatten().fold(Outcome::Done, sooner)))
    }
}

impl UnmanagedNodes {
    async fn perform(
        &self,
        observed: &Observed,
        plan: &Vec<NodeTask>,
    ) -> Result<Vec<Option<Outcome>>, PassError> {
        let mut outcomes = Vec::with_capacity(plan.len());
        for (Found { target, node, .. }, task) in observed.nodes.iter().zip(plan) {
            outcomes.push(match task {
                NodeTask::Leave => Some(Outcome::Done),
                NodeTask::LookAgain(at) => Some(Outcome::Again(until(*at, observed.now))),
                NodeTask::Release { mark } => {
                    self.patch(target, node, release_patch(node, *mark)).await
                }
                NodeTask::Unmark => {
                    // A Machine of that name without an instance yet may not belong to this Node.
                    let notes = if is_of_another(node, &self.cluster) {
                        json!({ NOT_MANAGED: null })
                    } else {
                        json!({ NOT_MANAGED: null, CLUSTER_ID: self.cluster.own })
                    };
                    let unmarked = json!({ "annotations": notes });
                    self.patch(target, node, unmarked).await
                }
            });
        }
        Ok(outcomes)
    }

    /// Patches on condition of the version that was planned from, so that finalizers of other clients are never lost.
    /// `None`: the Node is gone.
    async fn patch(&self, target: &Target, node: &Node, mut metadata: Value) -> Option<Outcome> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Some(fields) = metadata.as_object_mut() {
            fields.insert("resourceVersion".to_owned(), json!(node.metadata.resource_version));
        }
        let writer = self.writer.to(&target.client);
        let api: Api<Node> = writer.cluster_api();
        Some(match writer.patch::<Node>(&api, name, &json!({ "metadata": metadata })).await {
            Ok(written) => {
                target.nodes.update(written, Author::new(Self::NAME, node));
                Outcome::Done
            }
            // The watch reports the Node's fate.
            Err(WriteError::NotFound) => return None,
            Err(WriteError::Conflict) => Outcome::Outdated,
            Err(failure) => {
                warn!(node = name, error = %failure, "cannot release a node without a machine");
                Outcome::Failed
            }
        })
    }

    fn record_event(&self, Found { target, node, .. }: &Found, mark: bool) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        info!(node = name, marked = mark, "no machine has this node; released it");
        let note = format!("no machine has node {name}: it can be deleted");
        let event = Event::normal(EventReason::NodeNotManaged, note).doing(EventAction::Release);
        tell(&self.recorder.to(&target.client), node.object_ref(&()), event);
    }
}

/// The tie between a Node and a Machine. While a Machine cannot be read, it may name the Node.
fn tie(stores: &Stores, node: &Node) -> Tie {
    let machines = &stores.machines;
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let id = provider_id(node);
    let has = |machine: &Machine| {
        let by = || stores.id_comparison(machine).by();
        id.is_some_and(|id| machine.instance_id().is_some_and(|it| it.is_of_node(id, by())))
    };
    let named = machines.find(MachineIndex::Node, name);
    let ending = id.and_then(ProviderId::ending);
    let with_id = ending.map(|ending| machines.find(MachineIndex::Ending, &ending));
    let with_id = with_id.unwrap_or_default();
    let equals = |machine: &Arc<Machine>| {
        let by = || stores.id_comparison(machine).by();
        id.is_some_and(|id| machine.instance_id().is_some_and(|it| it.equals(id, by())))
    };
    let mut found = named.iter().chain(with_id.iter().filter(|it| equals(it)));
    if found.any(|machine| joined_as(machine, node) || has_own_instance(machine) && has(machine)) {
        return Tie::Known;
    }
    // Another spelling of a Machine's id names the Machine, too, and its driver may be away.
    let names = |machine: &Arc<Machine>| {
        let ids = [machine.provider_id(), machine.instance_id()];
        id.is_some_and(|id| {
            ids.into_iter().flatten().any(|it| it.is_spelled(id) || it.may_equal(id))
        })
    };
    let labels = node.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(label::MACHINE_NAME).map(String::as_str));
    let may_be_of = |machine: &str| {
        machines.any(MachineIndex::Name, machine, |machine| {
            let theirs = machine.provider_id();
            theirs.is_none_or(|theirs| id.is_none_or(|id| theirs.may_equal(id)))
        })
    };
    let said = machines.has_unreadable()
        || !named.is_empty()
        || with_id.iter().any(names)
        || may_be_of(name)
        || label.is_some_and(may_be_of);
    if said { Tie::Said } else { Tie::None }
}

/// The earlier of two.
fn sooner(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Failed, _) | (_, Outcome::Failed) => Outcome::Failed,
        (Outcome::Outdated, _) | (_, Outcome::Outdated) => Outcome::Outdated,
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
    use kube::runtime::watcher::Event;

    use super::*;

    #[test]
    fn a_machine_has_a_node_by_what_its_driver_said_and_only_names_it_by_what_users_write() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "n", "uid": "u" }, "spec": { "providerID": "a:///1" },
        }))
        .unwrap();
        let own = |id| json!({ "instanceUID": "uid-of-m", "instanceProviderID": id });
        let joined = |uid| json!({ "nodeRef": { "name": "n", "uid": uid } });
        for (what, label, id, status, expected) in [
            ("a label", Some("n"), None, json!({}), Tie::Said),
            ("a spec", None, Some("a:///1"), json!({}), Tie::Said),
            ("a spec with another instance", Some("n"), Some("a:///1"), own("a:///2"), Tie::Said),
            ("an instance", None, Some("a:///1"), own("a:///1"), Tie::Known),
            ("an instance whose spec was changed", None, Some("b"), own("a:///1"), Tie::Known),
            ("it joined", None, None, joined("u"), Tie::Known),
            ("it joined as one before", None, None, joined("v"), Tie::Said),
            ("nothing", None, Some("b"), json!({}), Tie::None),
        ] {
            let stores = Stores::default();
            let machine = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {
                    "name": "m", "namespace": "default", "uid": "uid-of-m",
                    "labels": label.map(|label| json!({ "node": label })),
                },
                "spec": { "class": { "name": "c" }, "providerID": id },
                "status": status,
            }));
            stores.machines.apply(Event::Apply(machine.unwrap()));
            assert_eq!(tie(&stores, &node), expected, "{what}");
        }
    }

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
        assert_eq!(sooner(Outcome::Done, Outcome::Outdated), Outcome::Outdated);
        assert_eq!(sooner(Outcome::Outdated, Outcome::Failed), Outcome::Failed);
    }
}
