//! The pods that have to leave.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    Machine,
    machine::{MachineStatus, MachineStep},
};

use crate::{
    machine::health,
    pod::PodView,
    snapshot::{Observed, Settings, Snapshot},
};

/// Pods that a drain waits for, in the order of the snapshot. Static pods stay, and so do pods that their DaemonSet
/// would replace immediately; finished pods, and pods that have been terminating for too long, are not waited for.
pub(crate) fn leaving(snap: &Snapshot) -> Vec<&PodView> {
    let Observed::Known(pods) = &snap.pods else { return Vec::new() };
    let patience = snap.machine.skip_wait_for_delete(snap.settings.skip_wait_for_delete);
    let lost = lost_nodes(&snap.node.all(), snap.now, &snap.settings);
    pods.iter()
        .filter(|pod| is_waited_for(snap.now, pod, patience) && !lost.contains(&pod.node.as_str()))
        .collect()
}

/// Pods that no kubelet ends: the VM came back as another Node than theirs.
pub(super) fn lost(snap: &Snapshot) -> Vec<&PodView> {
    let Observed::Known(pods) = &snap.pods else { return Vec::new() };
    let lost = lost_nodes(&snap.node.all(), snap.now, &snap.settings);
    pods.iter().filter(|pod| has_to_leave(pod) && lost.contains(&pod.node.as_str())).collect()
}

/// Names of the Nodes of the instance that are lost while others are not. If all are, the drain is forced.
fn lost_nodes<'a>(nodes: &[&'a Arc<Node>], now: Timestamp, settings: &Settings) -> Vec<&'a str> {
    let is_lost = |node: &&&Arc<Node>| is_lost(node, now, settings);
    let lost: Vec<_> = nodes.iter().filter(is_lost).collect();
    if lost.len() == nodes.len() {
        return Vec::new();
    }
    lost.into_iter().filter_map(|node| node.metadata.name.as_deref()).collect()
}

/// Whether a Node has been lost for `unreachable_after`.
pub(super) fn is_lost(node: &Node, now: Timestamp, settings: &Settings) -> bool {
    let for_long = SignedDuration::try_from(settings.unreachable_after).unwrap_or_default();
    health::is_lost(node, now.checked_sub(for_long).unwrap_or(Timestamp::MIN))
}

/// Whether a step without pods cannot be taken back: a drain of these Nodes would end, or their instance go after an
/// earlier drain. The watch may be a moment old, and a pod bound right before the cordon, or after a user took the
/// cordon back, not seen yet: the API server itself is to be asked first for the pods.
pub fn is_last_look(
    machine: &Machine,
    settings: &Settings,
    now: Timestamp,
    nodes: &[&Arc<Node>],
    pods: &[PodView],
) -> bool {
    let status = machine.status.as_ref();
    let drain = status.and_then(|status| status.drain.as_ref());
    let drained = drain.is_some_and(|drain| drain.finished);
    let is_held = |status: &MachineStatus| {
        let step = &status.step;
        let held = matches!(
            step,
            Some(
                MachineStep::DetachVolumes
                    | MachineStep::DeleteInstance
                    | MachineStep::PreTerminateHook
            )
        );
        held && status.operation.is_none()
    };
    let waits = machine.is_deleting() && status.is_some_and(is_held);
    let patience = machine.skip_wait_for_delete(settings.skip_wait_for_delete);
    let lost = lost_nodes(nodes, now, settings);
    let waited =
        |pod: &PodView| is_waited_for(now, pod, patience) && !lost.contains(&pod.node.as_str());
    machine.is_drained()
        && nodes.iter().all(|node| is_cordoned(node))
        && (!drained || waits)
        && !pods.iter().any(waited)
}

/// Whether no new pods come to a Node.
pub(super) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn is_waited_for(now: Timestamp, pod: &PodView, patience: Option<Duration>) -> bool {
    has_to_leave(pod) && !is_given_up(now, pod, patience)
}

fn has_to_leave(pod: &PodView) -> bool {
    !pod.mirror && !pod.daemon && !pod.finished
}

/// As in `kubectl drain --skip-wait-for-delete-timeout`: counted from the end of the grace.
fn is_given_up(now: Timestamp, pod: &PodView, patience: Option<Duration>) -> bool {
    let (Some(patience), Some(ends_at)) = (patience, pod.ends_at) else { return false };
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    now.duration_since(ends_at) > patience
}

/// A finished pod is swept away with the others, and never waited for.
pub(super) fn is_left_over(pod: &PodView) -> bool {
    pod.finished && !pod.mirror && !pod.daemon && !pod.terminating && pod.refused.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_drain_would_end_when_the_node_is_cordoned_and_nobody_is_waited_for() {
        let machine = |deleted: bool, finished: bool| -> Machine {
            let deleted = deleted.then_some("2026-01-01T00:00:00Z");
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": "m", "deletionTimestamp": deleted },
                "spec": {}, "status": { "drain": { "finished": finished } },
            }))
            .unwrap()
        };
        let node = |cordoned: bool| -> Node {
            serde_json::from_value(json!({ "spec": { "unschedulable": cordoned } })).unwrap()
        };
        let settings = Settings::default();
        let ends = |machine: &Machine, cordoned: bool, pods: &[PodView]| {
            let node = Arc::new(node(cordoned));
            is_last_look(machine, &settings, Timestamp::UNIX_EPOCH, &[&node], pods)
        };
        let drained = machine(true, false);
        let app = PodView::default();
        let daemon = PodView { daemon: true, ..PodView::default() };
        assert!(ends(&drained, true, &[]));
        assert!(ends(&drained, true, std::slice::from_ref(&daemon)));
        assert!(!ends(&drained, true, &[daemon, app]), "a pod is waited for");
        assert!(!ends(&drained, false, &[]), "more may come");
        assert!(!ends(&machine(true, true), true, &[]), "it has ended before");
        assert!(!ends(&machine(false, true), true, &[]), "no drain is due");
        assert!(ends(&machine(false, false), true, &[]), "a drain for something else");
    }
}
