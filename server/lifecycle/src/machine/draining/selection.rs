//! Which pods have to leave.

use std::time::Duration;

use jiff::SignedDuration;

use crate::{
    pod::PodView,
    snapshot::{Observed, Snapshot},
};

/// Pods that a drain waits for, in the order of the snapshot. It leaves alone those that the kubelet
/// made itself, and those that their DaemonSet would put back at once; it does not wait for finished
/// ones, nor for those that have been terminating for longer than somebody has patience.
pub(crate) fn leaving(snap: &Snapshot) -> Vec<&PodView> {
    let Observed::Known(pods) = &snap.pods else { return Vec::new() };
    let patience = snap.machine.skip_wait_for_delete(snap.settings.skip_wait_for_delete);
    pods.iter().filter(|pod| has_to_leave(pod) && !is_given_up(snap, pod, patience)).collect()
}

fn has_to_leave(pod: &PodView) -> bool {
    !pod.mirror && !pod.daemon && !pod.finished
}

/// As in `kubectl drain --skip-wait-for-delete-timeout`: counted from the end of the grace.
fn is_given_up(snap: &Snapshot, pod: &PodView, patience: Option<Duration>) -> bool {
    let (Some(patience), Some(ends_at)) = (patience, pod.ends_at) else { return false };
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    snap.now.duration_since(ends_at) > patience
}

/// A finished pod is swept away with the others, and never waited for.
pub(super) fn is_left_over(pod: &PodView) -> bool {
    pod.finished && !pod.mirror && !pod.daemon && !pod.terminating && pod.refused.is_none()
}
