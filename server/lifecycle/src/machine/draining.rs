//! Deletion: no new pods on the Node, then the pods leave.
//!
//! Each pass is short: it asks for what can be asked for now, says what is left, and rests. One
//! deadline counts from the deletion of the Machine; after it, or when the operator or a lost Node
//! asks for it, pods are deleted without grace and not waited for.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{
        DrainProgress, MachineConditionType, MachineOperationType, MachineState, MachineStep,
        WaitReason,
    },
    timeout::Timeout,
};

use super::{
    State, conditions, health,
    pass::{Pass, Turn, after},
    preconditions,
};
use crate::{
    plan::{Action, EventReason, PodRef},
    snapshot::{NodeView, Observed, PodView, Snapshot, TargetView},
};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Turn {
    if pass.status.drain.as_ref().is_some_and(|drain| drain.finished) {
        return Turn::To(State::Detaching);
    }
    match &pass.snap.node {
        NodeView::Unknown if is_unseen_for_good(pass.snap) => return Turn::To(State::Deleting),
        NodeView::Unknown => {
            let lack = preconditions::unseen(pass.snap, "nodes");
            return pass.wait(lack.reason, Some(lack.message), deadline(pass.snap));
        }
        NodeView::Ambiguous(nodes) if !overdue(pass.snap) && !pass.machine.wants_force() => {
            let text = format!("nodes {} claim to be it", nodes.join(", "));
            let until = deadline(pass.snap);
            return pass.wait(WaitReason::NodeAmbiguous, Some(text), until);
        }
        NodeView::Ambiguous(_) | NodeView::Absent | NodeView::Known(_) => {}
    }
    let Some(node) = pass.node() else { return Turn::To(State::Deleting) };
    begin(pass);
    let force = must_force(pass.snap, node);
    if !is_cordoned(node) {
        pass.node_patch.cordon = true;
        if !force {
            pass.step(Some(MachineStep::CordonNode));
            // Pods that were bound before the cordon are seen after it only.
            return pass.wait(WaitReason::NodeNotCordoned, None, None);
        }
    }
    pass.step(Some(MachineStep::DrainNode));
    let Observed::Known(pods) = &pass.snap.pods else {
        if force {
            return finish(pass, true);
        }
        let until = deadline(pass.snap);
        let what = "the pods of the node were not looked up yet".to_owned();
        return pass.wait(WaitReason::NotObserved, Some(what), until);
    };
    let leaving: Vec<&PodView> = pods.iter().filter(|pod| has_to_leave(pod)).collect();
    for pod in pods.iter().filter(|pod| is_left_over(pod)) {
        pass.act(Action::Evict(reference(pod)));
    }
    if force {
        for pod in &leaving {
            pass.act(Action::DeletePod(reference(pod)));
        }
        return finish(pass, !leaving.is_empty());
    }
    if leaving.is_empty() {
        return finish(pass, false);
    }
    evict(pass, &leaving)
}

/// When the drain ends by force; `None` only for a Machine that is not being deleted.
pub(crate) fn deadline(snap: &Snapshot) -> Option<Timestamp> {
    let from = snap.machine.metadata.deletion_timestamp.as_ref()?.0;
    let own = snap.machine.spec.drain_timeout.as_ref().and_then(Timeout::duration);
    Some(after(from, own.unwrap_or(snap.settings.drain_timeout)))
}

/// Whether the deadline has passed.
pub(crate) fn overdue(snap: &Snapshot) -> bool {
    deadline(snap).is_some_and(|deadline| snap.now >= deadline)
}

/// Whether pods are to be deleted without grace and without waiting.
pub(crate) fn must_force(snap: &Snapshot, node: &Node) -> bool {
    snap.machine.wants_force() || overdue(snap) || is_lost(snap, node)
}

/// Whether the target cluster cannot be looked into and is not waited for any longer: a cluster
/// that is gone must not keep its machines. One whose secret is gone is not waited for at all by a
/// machine that no Node was ever seen of.
pub(crate) fn is_unseen_for_good(snap: &Snapshot) -> bool {
    let TargetView::Lacking { reason, .. } = &snap.target else { return false };
    let gone = matches!(reason, WaitReason::TargetUnnamed | WaitReason::TargetSecretMissing);
    let node_seen = snap.machine.status.as_ref().is_some_and(conditions::has_any_of_a_node);
    overdue(snap) || snap.machine.wants_force() || (gone && !node_seen)
}

fn is_lost(snap: &Snapshot, node: &Node) -> bool {
    let for_long = SignedDuration::try_from(snap.settings.unreachable_after).unwrap_or_default();
    let since = snap.now.checked_sub(for_long).unwrap_or(Timestamp::MIN);
    health::is_lost(node, since)
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// A finished pod is swept away with the others, and never waited for.
fn is_left_over(pod: &PodView) -> bool {
    pod.finished && !pod.mirror && !pod.daemon && !pod.terminating && pod.refused.is_none()
}

/// Pods that a drain leaves alone: those that the kubelet made itself, and those that their
/// DaemonSet would put back at once.
fn has_to_leave(pod: &PodView) -> bool {
    !pod.mirror && !pod.daemon && !pod.finished
}

fn reference(pod: &PodView) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

fn begin(pass: &mut Pass<'_>) {
    if pass.status.drain.is_some() {
        return;
    }
    pass.status.drain = Some(DrainProgress {
        started_at: Some(pass.now()),
        deadline: deadline(pass.snap).map(Into::into),
        ..DrainProgress::default()
    });
    pass.event(false, EventReason::DrainStarted, pass.name().to_owned());
}

/// Asks for the eviction of every pod whose time it is, and says what is left. What comes of the
/// requests is added by [`record`](crate::record::record).
fn evict(pass: &mut Pass<'_>, leaving: &[&PodView]) -> Turn {
    let every = pass.snap.settings.eviction_retry;
    let now = pass.snap.now;
    let (mut waiting, mut soonest) = (Vec::new(), after(now, every));
    for pod in leaving.iter().filter(|pod| !pod.terminating) {
        match pod.refused.map(|refusal| (refusal, after(refusal.at, every))) {
            Some((refusal, until)) if now < until => {
                soonest = soonest.min(until);
                waiting.push((*pod, refusal));
            }
            Some(_) | None => pass.act(Action::Evict(reference(pod))),
        }
    }
    if let Some(drain) = &mut pass.status.drain {
        let blocked = waiting.iter().filter(|(_, refusal)| refusal.by_budget).count();
        drain.pods_left = number(leaving.len());
        drain.terminating = number(leaving.iter().filter(|pod| pod.terminating).count());
        drain.blocked = number(blocked);
        drain.failing = number(waiting.len() - blocked);
        drain.examples =
            waiting.iter().take(MOST_EXAMPLES).map(|(pod, _)| pod.full_name()).collect();
    }
    let reason = reason(pass.status.drain.as_ref());
    let deadline = deadline(pass.snap);
    let all_terminating = leaving.iter().all(|pod| pod.terminating);
    let until = match deadline {
        Some(deadline) if all_terminating => deadline,
        Some(deadline) => deadline.min(soonest),
        None => soonest,
    };
    pass.wait(reason, Some(format!("pods that have to leave: {}", leaving.len())), Some(until))
}

/// What a drain waits for: the worst thing first.
pub(crate) fn reason(drain: Option<&DrainProgress>) -> WaitReason {
    match drain {
        Some(drain) if drain.failing > 0 => WaitReason::EvictionFailing,
        Some(drain) if drain.blocked > 0 => WaitReason::PodDisruptionBudget,
        Some(_) | None => WaitReason::PodsTerminating,
    }
}

/// How many pods a status names: enough to know where to look, few enough to read.
pub(crate) const MOST_EXAMPLES: usize = 3;

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn finish(pass: &mut Pass<'_>, forced: bool) -> Turn {
    if let Some(drain) = &mut pass.status.drain {
        let (started_at, deadline) = (drain.started_at.take(), drain.deadline.take());
        *drain = DrainProgress {
            started_at,
            deadline,
            forced,
            finished: true,
            ..DrainProgress::default()
        };
    }
    let now = pass.now();
    let (event, reason, text) = if forced {
        (EventReason::DrainForced, "Forced", "pods were deleted without grace")
    } else {
        (EventReason::Drained, "Drained", "no pod is left that has to leave")
    };
    conditions::set(&mut pass.status, &now, &MachineConditionType::Drained, true, reason, text);
    let state = MachineState::Processing;
    pass.last_operation(MachineOperationType::Delete, state, text, None);
    pass.event(forced, event, text.to_owned());
    Turn::To(State::Detaching)
}
