//! Deletion: no new pods on the Node, then the pods leave.
//!
//! Each pass is short: it asks for what can be asked for now, says what is left, and rests. One
//! deadline counts from the deletion of the Machine; after it, or when the operator or a lost Node
//! asks for it, pods are deleted without grace and not waited for.

pub(crate) mod progress;
mod selection;
mod turns;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{
        DrainProgress, MachineConditionType, MachineOperationType, MachineState, MachineStep,
        WaitReason,
    },
    names,
    timeout::Timeout,
};

use super::{
    State, conditions, health,
    hooks::{self, Hook},
    pass::{Pass, Turn, after},
    preconditions,
};
use crate::{
    plan::{Action, EventReason, PodRef},
    pod::{PodView, Refusal},
    snapshot::{NodeView, Observed, Settings, TargetView},
};
pub(crate) use selection::leaving;
use turns::Turns;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Turn {
    if pass.status.drain.as_ref().is_some_and(|drain| drain.finished) {
        return Turn::To(State::Detaching);
    }
    match &pass.snap.node {
        NodeView::Unknown if is_unseen_for_good(pass) => return Turn::To(State::Deleting),
        NodeView::Unknown => {
            let lack = preconditions::unseen(pass.snap, "nodes");
            return pass.wait(lack.reason, Some(lack.message), deadline(pass));
        }
        NodeView::Ambiguous(nodes) if !overdue(pass) && !pass.machine.wants_force() => {
            let text = format!("nodes {} claim to be it", nodes.join(", "));
            let until = deadline(pass);
            return pass.wait(WaitReason::NodeAmbiguous, Some(text), until);
        }
        NodeView::Ambiguous(_) | NodeView::Absent | NodeView::Known(_) => {}
    }
    let Some(node) = pass.node() else { return Turn::To(State::Deleting) };
    if let Some(turn) = hooks::hold(pass, Hook::PreDrain) {
        return turn;
    }
    begin(pass);
    let force = must_force(pass, node);
    mark(pass, node);
    if !is_cordoned(node) {
        pass.node_patch.cordon = true;
        if !force {
            pass.step(Some(MachineStep::CordonNode));
            // Pods that were bound before the cordon are seen after it only.
            return pass.wait(WaitReason::NodeNotCordoned, None, None);
        }
    }
    pass.step(Some(MachineStep::DrainNode));
    drain(pass, force)
}

fn drain(pass: &mut Pass<'_>, force: bool) -> Turn {
    let Observed::Known(pods) = &pass.snap.pods else {
        if force {
            return finish(pass, true);
        }
        let until = deadline(pass);
        let what = "the pods of the node were not looked up yet".to_owned();
        return pass.wait(WaitReason::NotObserved, Some(what), until);
    };
    for pod in pods.iter().filter(|pod| selection::is_left_over(pod)) {
        ask(pass, pod);
    }
    let leaving = leaving(pass.snap);
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
pub(crate) fn deadline(pass: &Pass<'_>) -> Option<Timestamp> {
    let deleted = pass.machine.metadata.deletion_timestamp.as_ref()?.0;
    let held = pass.status.drain.as_ref().and_then(|drain| drain.counts_from.as_ref());
    Some(after(held.map_or(deleted, |time| time.0), limit(pass)))
}

fn limit(pass: &Pass<'_>) -> Duration {
    let own = pass.machine.spec.drain_timeout.as_ref().and_then(Timeout::duration);
    own.unwrap_or(pass.snap.settings.drain_timeout)
}

/// Whether the deadline has passed.
fn overdue(pass: &Pass<'_>) -> bool {
    deadline(pass).is_some_and(|deadline| pass.snap.now >= deadline)
}

/// Whether pods are to be deleted without grace and without waiting.
pub(crate) fn must_force(pass: &Pass<'_>, node: &Node) -> bool {
    pass.machine.wants_force() || overdue(pass) || is_lost(pass, node)
}

/// Whether the target cluster cannot be looked into and is not waited for any longer: a cluster
/// that is gone must not keep its machines. One whose secret is gone is not waited for at all by a
/// machine that no Node was ever seen of.
pub(crate) fn is_unseen_for_good(pass: &Pass<'_>) -> bool {
    let TargetView::Lacking { reason, .. } = &pass.snap.target else { return false };
    let gone = matches!(reason, WaitReason::TargetUnnamed | WaitReason::TargetSecretMissing);
    let node_seen = pass.machine.status.as_ref().is_some_and(conditions::has_any_of_a_node);
    overdue(pass) || pass.machine.wants_force() || (gone && !node_seen)
}

fn is_lost(pass: &Pass<'_>, node: &Node) -> bool {
    let for_long =
        SignedDuration::try_from(pass.snap.settings.unreachable_after).unwrap_or_default();
    let since = pass.snap.now.checked_sub(for_long).unwrap_or(Timestamp::MIN);
    health::is_lost(node, since)
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Says on the Node what happens to it. Nothing waits for that.
fn mark(pass: &mut Pass<'_>, node: &Node) {
    let marked = health::conditions(node)
        .iter()
        .any(|one| one.type_ == names::node_condition::TERMINATING && one.status == "True");
    if let (false, Some(cause)) = (marked, pass.status.deletion_cause.clone()) {
        let name = node.metadata.name.clone().unwrap_or_default();
        pass.act_last(Action::MarkNode { name, cause });
    }
}

fn reference(pod: &PodView) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

fn begin(pass: &mut Pass<'_>) {
    let now = pass.now();
    let held = pass.status.step == Some(MachineStep::PreDrainHook);
    let first = pass.status.drain.is_none();
    let drain = pass.status.drain.get_or_insert_default();
    if first {
        drain.started_at = Some(now.clone());
    }
    if held {
        drain.counts_from = Some(now);
    }
    let deadline = deadline(pass).map(Into::into);
    if let Some(drain) = &mut pass.status.drain {
        drain.deadline = deadline;
    }
    if first {
        pass.event_on_node(false, EventReason::DrainStarted, pass.name().to_owned());
    }
}

/// Asks a pod to leave, with its own grace.
fn ask(pass: &mut Pass<'_>, pod: &PodView) {
    let pod = reference(pod);
    pass.act(if pass.snap.can_evict { Action::Evict(pod) } else { Action::EndPod(pod) });
}

/// Asks every pod whose time it is, and says what is left. What comes of the requests is added by
/// [`record`](crate::record::record).
fn evict(pass: &mut Pass<'_>, leaving: &[&PodView]) -> Turn {
    let turns = Turns::of(pass, leaving);
    let tries = tries(pass);
    let mut soonest = [deadline(pass), turns.until()].into_iter().flatten().min();
    let mut again = |at: Timestamp| soonest = Some(soonest.map_or(at, |other| other.min(at)));
    for pod in leaving {
        if pod.terminating {
            progress::changes_at(pass, pod).into_iter().for_each(&mut again);
            continue;
        }
        if !turns.may_go(pod) {
            continue;
        }
        match &pod.refused {
            Some(refusal) if pass.snap.now < next_try(refusal, &pass.snap.settings) => {
                again(next_try(refusal, &pass.snap.settings));
            }
            Some(refusal) if refusal.attempts >= tries => {
                pass.act(Action::DeletePod(reference(pod)));
            }
            None if tries == 0 => pass.act(Action::DeletePod(reference(pod))),
            Some(_) | None => {
                again(after(pass.snap.now, pass.snap.settings.eviction_retry));
                ask(pass, pod);
            }
        }
    }
    let now = pass.snap.now;
    if let Some(drain) = &mut pass.status.drain {
        progress::tally(drain, leaving, |_| None, now);
    }
    let reason = turns.reason().unwrap_or_else(|| progress::reason(pass.status.drain.as_ref()));
    let text = turns.message().or_else(|| pass.status.drain.as_ref().map(progress::describe));
    pass.wait(reason, text, soonest)
}

/// When an eviction that was tried in vain is tried again.
fn next_try(refusal: &Refusal, settings: &Settings) -> Timestamp {
    /// The API server cannot ask for more: what it waits for may come earlier.
    const MOST: Duration = Duration::from_mins(2);
    let doublings = u32::try_from(refusal.attempts.saturating_sub(1)).unwrap_or(0).min(10);
    let usual = settings.eviction_retry.saturating_mul(1 << doublings);
    let usual = usual.min(settings.eviction_retry_max);
    let said = refusal.retry_after.filter(|wait| !wait.is_zero());
    after(refusal.at, said.map_or(usual, |wait| wait.clamp(settings.eviction_retry, MOST)))
}

/// How many evictions of one pod are tried before it is deleted without grace. As many as the
/// drain timeout has room for, or more, is no limit of its own: the deadline comes first.
fn tries(pass: &Pass<'_>) -> i32 {
    let own = pass.machine.spec.max_evict_retries.unwrap_or(pass.snap.settings.max_evict_retries);
    let every = pass.snap.settings.eviction_retry_max.as_secs().max(1);
    let fit = i32::try_from(limit(pass).as_secs() / every).unwrap_or(i32::MAX);
    if own >= fit { i32::MAX } else { own.max(0) }
}

fn finish(pass: &mut Pass<'_>, forced: bool) -> Turn {
    if let Some(drain) = &mut pass.status.drain {
        *drain = DrainProgress {
            started_at: drain.started_at.take(),
            counts_from: drain.counts_from.take(),
            deadline: drain.deadline.take(),
            volumes: std::mem::take(&mut drain.volumes),
            forced,
            finished: true,
            ..DrainProgress::default()
        };
    }
    let (event, reason, text) = if forced {
        (EventReason::DrainForced, "Forced", "pods were deleted without grace")
    } else {
        (EventReason::Drained, "Drained", "no pod is left that has to leave")
    };
    let (now, drained) = (pass.now(), &MachineConditionType::Drained);
    conditions::set(&mut pass.status, &now, drained, !forced, reason, text);
    let state = MachineState::Processing;
    pass.last_operation(MachineOperationType::Delete, state, text, None);
    pass.event_on_node(forced, event, text.to_owned());
    Turn::To(State::Detaching)
}
