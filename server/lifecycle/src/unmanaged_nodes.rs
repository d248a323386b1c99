//! Decisions about Nodes without a Machine: the core removes its finalizer, so that the Nodes can be deleted, and marks
//! the Nodes for users. A target cluster may have Nodes of several cores: Nodes of another core are left alone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::names::{
    annotation::{CLUSTER_ID, NOT_MANAGED},
    finalizer,
};

use crate::{cluster::ClusterIds, time::after};

/// The tie between a Node and a Machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// Nothing.
    None,
    /// The Node or the Machine names the other, in fields that users and kubelets write.
    Said,
    /// The Machine joined as the Node, or its driver or pool confirms the instance.
    Known,
}

/// The task about a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeTask {
    /// Nothing.
    Leave,
    /// The Node's Machine may still turn up: look again then.
    LookAgain(Timestamp),
    /// Remove our finalizer from the Node, and mark the Node as not managed if `mark`.
    Release {
        /// Whether to mark the Node. A Node in deletion is not marked.
        mark: bool,
    },
    /// The Node has a Machine after all: remove the mark, and note the owner, so that the core that set the mark leaves
    /// the Node alone.
    Unmark,
}

/// Whether a Node is marked as not managed: it concerns no Machine.
pub fn is_not_managed(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(NOT_MANAGED))
}

/// Whether a core of another cluster holds a Node.
pub fn is_of_another(node: &Node, ids: &ClusterIds) -> bool {
    let notes = node.metadata.annotations.as_ref();
    notes.and_then(|all| all.get(CLUSTER_ID)).is_some_and(|id| !ids.has(id))
}

/// Decides about a Node. Upstream waits for the creation timeout as well, and counts it from the birth of the Node.
pub fn plan(
    node: &Node,
    tie: Tie,
    ids: &ClusterIds,
    now: Timestamp,
    creation_timeout: Duration,
) -> NodeTask {
    let marked = is_not_managed(node);
    match tie {
        Tie::Known if marked => return NodeTask::Unmark,
        Tie::Known | Tie::Said => return NodeTask::Leave,
        Tie::None => {}
    }
    if is_of_another(node, ids) {
        return NodeTask::Leave;
    }
    let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
    let held = finalizers.iter().any(|name| name == finalizer::NODE);
    if node.metadata.deletion_timestamp.is_some() {
        return if held { NodeTask::Release { mark: false } } else { NodeTask::Leave };
    }
    if marked && !held {
        return NodeTask::Leave;
    }
    let born = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let until = after(born, creation_timeout);
    if now < until { NodeTask::LookAgain(until) } else { NodeTask::Release { mark: true } }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(20);

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn ids() -> ClusterIds {
        ClusterIds { own: "a".to_owned(), previous: vec!["before".to_owned()] }
    }

    /// A Node that is 20 minutes old.
    fn node(held: bool, marked: bool, deleting: bool) -> Node {
        let mut node = Node::default();
        node.metadata.creation_timestamp = Some(Time(time(-1200)));
        node.metadata.finalizers = held.then(|| vec![finalizer::NODE.to_owned()]);
        node.metadata.annotations =
            marked.then(|| [(NOT_MANAGED.to_owned(), "1".to_owned())].into());
        node.metadata.deletion_timestamp = deleting.then(|| Time(time(0)));
        node
    }

    #[test]
    fn a_node_without_a_machine_is_let_go_of_and_marked_after_the_creation_timeout() {
        let table = [
            ((true, false, false), NodeTask::Release { mark: true }),
            ((false, false, false), NodeTask::Release { mark: true }),
            ((true, true, false), NodeTask::Release { mark: true }),
            ((false, true, false), NodeTask::Leave),
            ((true, false, true), NodeTask::Release { mark: false }),
            ((false, false, true), NodeTask::Leave),
        ];
        for ((held, marked, deleting), expected) in table {
            let node = node(held, marked, deleting);
            assert_eq!(
                plan(&node, Tie::None, &ids(), time(0), TIMEOUT),
                expected,
                "{held} {marked} {deleting}"
            );
        }
        let young = node(true, false, false);
        assert_eq!(
            plan(&young, Tie::None, &ids(), time(-1), TIMEOUT),
            NodeTask::LookAgain(time(0))
        );
        let doomed = node(true, false, true);
        let now = time(-1000);
        assert_eq!(
            plan(&doomed, Tie::None, &ids(), now, TIMEOUT),
            NodeTask::Release { mark: false }
        );
    }

    #[test]
    fn a_node_that_another_core_holds_is_left_to_it() {
        for (noted, ours) in
            [(None, true), (Some("a"), true), (Some("before"), true), (Some("b"), false)]
        {
            for (held, marked, deleting) in [
                (true, false, false),
                (true, true, false),
                (false, false, false),
                (true, false, true),
            ] {
                let mut node = node(held, marked, deleting);
                let notes = node.metadata.annotations.get_or_insert_default();
                notes.extend(noted.map(|id| (CLUSTER_ID.to_owned(), id.to_owned())));
                let task = plan(&node, Tie::None, &ids(), time(0), TIMEOUT);
                let released = matches!(task, NodeTask::Release { .. });
                assert_eq!(released, ours, "{noted:?} {held} {marked} {deleting}");
            }
        }
        let mut taken_over = node(false, true, false);
        let note = (CLUSTER_ID.to_owned(), "b".to_owned());
        taken_over.metadata.annotations.get_or_insert_default().extend([note]);
        assert_eq!(plan(&taken_over, Tie::Known, &ids(), time(0), TIMEOUT), NodeTask::Unmark);
    }

    #[test]
    fn a_node_with_a_machine_is_left_to_it_and_loses_the_mark_once_more_than_words_tie_them() {
        for (tie, marked, deleting, expected) in [
            (Tie::Known, false, false, NodeTask::Leave),
            (Tie::Known, false, true, NodeTask::Leave),
            (Tie::Known, true, false, NodeTask::Unmark),
            (Tie::Said, true, false, NodeTask::Leave),
            (Tie::Said, false, false, NodeTask::Leave),
        ] {
            let node = node(!marked, marked, deleting);
            assert_eq!(plan(&node, tie, &ids(), time(0), TIMEOUT), expected, "{tie:?} {marked}");
        }
    }
}
