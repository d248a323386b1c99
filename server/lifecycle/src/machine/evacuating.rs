//! The pods of a preserved Failed Machine leave its Node once, so that what ran there runs
//! elsewhere. Afterwards the Node is left alone: whoever examines it may put pods on it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use ostler_api::{machine::MachineConditionType, names::label, timeout::Timeout};

use super::{
    conditions, health,
    pass::{Pass, after},
};
use crate::{
    plan::{Action, PodRef},
    snapshot::Observed,
};

/// Whether the pods have left.
pub(crate) fn is_done(pass: &Pass<'_>) -> bool {
    conditions::held_since(&pass.status, &MachineConditionType::Drained).is_some()
}

/// The Node is not preserved any more: the next time, its pods leave again.
pub(crate) fn forget(pass: &mut Pass<'_>) {
    conditions::remove(&mut pass.status, &MachineConditionType::Drained);
}

/// Asks the pods to leave; how many are left and when to look again. `None`: none is.
pub(crate) fn plan(pass: &mut Pass<'_>) -> Option<(usize, Timestamp)> {
    let node = pass.node()?;
    if is_done(pass) {
        return None;
    }
    let Observed::Known(pods) = &pass.snap.pods else { return None };
    let deadline = deadline(pass);
    let force = must_force(pass, node, deadline);
    let every = pass.snap.settings.eviction_retry;
    let mut left = 0;
    for pod in pods.iter().filter(|pod| !pod.mirror && !pod.daemon && !pod.finished) {
        left += 1;
        let name = PodRef {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        let rests = pod.refused.as_ref().is_some_and(|one| pass.snap.now < after(one.at, every));
        if force {
            pass.act(Action::DeletePod(name));
        } else if !pod.terminating && !rests {
            pass.act(Action::Evict(name));
        }
    }
    if left == 0 || force {
        let (now, type_) = (pass.now(), MachineConditionType::Drained);
        let reason = if left > 0 { "Forced" } else { "Drained" };
        conditions::set(&mut pass.status, &now, &type_, true, reason, "preserved");
        return None;
    }
    Some((left, after(pass.snap.now, every).min(deadline)))
}

/// The drain timeout counts from the failure.
fn deadline(pass: &Pass<'_>) -> Timestamp {
    let own = pass.machine.spec.drain_timeout.as_ref().and_then(Timeout::duration);
    let current = pass.status.current_status.as_ref();
    let since = current.and_then(|current| current.last_update_time.as_ref());
    let since = since.map_or(pass.snap.now, |time| time.0);
    after(since, own.unwrap_or(pass.snap.settings.drain_timeout))
}

/// Nobody on a Node that is lost ends a pod.
fn must_force(pass: &Pass<'_>, node: &Node, deadline: Timestamp) -> bool {
    let for_long = SignedDuration::try_from(pass.snap.settings.unreachable_after);
    let since = pass.snap.now.checked_sub(for_long.unwrap_or_default()).unwrap_or(Timestamp::MIN);
    pass.machine.label(label::FORCE_DRAIN) == Some("True")
        || pass.snap.now >= deadline
        || health::is_lost(node, since)
}
