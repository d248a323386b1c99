//! Which pods have to leave.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use ostler_api::Machine;

use crate::{
    pod::PodView,
    snapshot::{Observed, Settings, Snapshot},
};

/// Pods that a drain waits for, in the order of the snapshot. It leaves alone those that the kubelet
/// made itself, and those that their DaemonSet would put back at once; it does not wait for finished
/// ones, nor for those that have been terminating for longer than somebody has patience.
pub(crate) fn leaving(snap: &Snapshot) -> Vec<&PodView> {
    let Observed::Known(pods) = &snap.pods else { return Vec::new() };
    let patience = snap.machine.skip_wait_for_delete(snap.settings.skip_wait_for_delete);
    pods.iter().filter(|pod| is_waited_for(snap.now, pod, patience)).collect()
}

/// Whether a drain of this Node would end with these pods. What is watched may be a moment old, and a
/// pod that was bound right before the cordon not seen yet: before a drain ends, the API server itself
/// is to be asked which pods there are.
pub fn would_end(
    machine: &Machine,
    settings: &Settings,
    now: Timestamp,
    node: &Node,
    pods: &[PodView],
) -> bool {
    let drain = machine.status.as_ref().and_then(|status| status.drain.as_ref());
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let patience = machine.skip_wait_for_delete(settings.skip_wait_for_delete);
    machine.is_drained()
        && cordoned
        && !drain.is_some_and(|drain| drain.finished)
        && !pods.iter().any(|pod| is_waited_for(now, pod, patience))
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
            would_end(machine, &settings, Timestamp::UNIX_EPOCH, &node(cordoned), pods)
        };
        let drained = machine(true, false);
        let app = PodView::default();
        let daemon = PodView { daemon: true, ..PodView::default() };
        assert!(ends(&drained, true, &[]));
        assert!(ends(&drained, true, std::slice::from_ref(&daemon)));
        assert!(!ends(&drained, true, &[daemon, app]), "somebody is waited for");
        assert!(!ends(&drained, false, &[]), "more may come");
        assert!(!ends(&machine(true, true), true, &[]), "it has ended before");
        assert!(!ends(&machine(false, true), true, &[]), "nobody drains");
        assert!(ends(&machine(false, false), true, &[]), "a drain for something else");
    }
}
