//! The pods leave a Node: the same drain for every purpose.
//!
//! Each pass is short: it makes the requests possible now, reports the rest, and rests. One deadline counts from when
//! the drain was asked for; after it, or when the operator or a lost Node asks for it, pods are deleted without grace
//! and not waited for.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::{
    machine::{
        DrainProgress, DrainPurpose, MachineConditionType, MachineStep, NoticeReason, WaitReason,
    },
    names::label,
    timeout::Timeout,
};

use super::{
    super::{
        conditions,
        pass::Pass,
        transition::{Outcome, Transition, wait},
    },
    eviction_order::EvictionOrder,
    progress, selection,
    selection::leaving,
};
use crate::{
    node, numbered,
    plan::{Action, EventReason, PodRef},
    pod::{EvictionRefusal, PodView},
    snapshot::{Observed, Settings},
    time::after,
};

const DRAINED: MachineConditionType = MachineConditionType::Drained;

/// Begins a drain for the purpose, unless one runs. `counts_from`: from when its timeout counts, if that is neither the
/// deletion of the Machine nor now.
pub(crate) fn begin(pass: &mut Pass<'_>, purpose: DrainPurpose, counts_from: Option<Time>) {
    if !is_for(pass, &purpose) || is_finished(pass, &purpose) {
        // The author of the cordon stays known, whatever its purpose.
        let before = pass.status.drain.take();
        let for_another = (purpose != DrainPurpose::Deletion).then_some(purpose);
        pass.status.drain = Some(DrainProgress {
            purpose: for_another,
            started_at: Some(pass.now()),
            counts_from,
            cordoned: before.as_ref().is_some_and(|before| before.cordoned),
            cordoned_nodes: before.map(|before| before.cordoned_nodes).unwrap_or_default(),
            ..DrainProgress::default()
        });
    }
    let deadline = deadline(pass).map(Into::into);
    if let Some(drain) = &mut pass.status.drain {
        drain.deadline = deadline;
    }
}

fn is_for(pass: &Pass<'_>, purpose: &DrainPurpose) -> bool {
    pass.status.drain.as_ref().is_some_and(|drain| drain.purpose() == *purpose)
}

fn stored<'a>(pass: &Pass<'a>) -> Option<&'a DrainProgress> {
    pass.snap.stored_status()?.drain.as_ref()
}

/// Whether the API has the deadline of this drain.
fn is_written(pass: &Pass<'_>) -> bool {
    stored(pass).is_some_and(|drain| is_for(pass, &drain.purpose()) && !drain.finished)
}

/// Whether a drain for this purpose has ended.
pub(crate) fn is_finished(pass: &Pass<'_>, purpose: &DrainPurpose) -> bool {
    is_for(pass, purpose) && pass.status.drain.as_ref().is_some_and(|drain| drain.finished)
}

/// A drain for this purpose is not wanted any more, or done with: the next drain begins anew.
pub(crate) fn forget(pass: &mut Pass<'_>, purpose: &DrainPurpose) {
    if !is_for(pass, purpose) {
        return;
    }
    pass.status.drain = None;
    conditions::remove(&mut pass.status, &DRAINED);
    if matches!(
        pass.status.step,
        Some(MachineStep::CordonNode | MachineStep::DrainNode | MachineStep::DetachVolumes)
    ) {
        pass.step(None);
    }
}

/// A drain for this purpose is not wanted any more: the Nodes take pods again, unless another controller cordoned them.
pub(crate) fn give_back(pass: &mut Pass<'_>, purpose: &DrainPurpose) {
    let drain = pass.status.drain.as_ref().filter(|drain| drain.cordoned);
    if let Some(those) = drain.map(|drain| drain.cordoned_nodes.clone())
        && is_for(pass, purpose)
    {
        let ours = |node: &Node| those.is_empty() || those.contains(&name_of(node));
        for node in pass.nodes().into_iter().filter(|node| ours(node)) {
            pass.effects.node_patch(node).uncordon = true;
        }
    }
    forget(pass, purpose);
}

fn name_of(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// No new pods on any Node of the instance. A wait if pods may still be on their way there.
pub(crate) fn cordon(pass: &mut Pass<'_>, force: bool) -> Outcome<()> {
    let nodes = pass.nodes();
    let open: Vec<_> = nodes.iter().filter(|node| !selection::is_cordoned(node)).collect();
    if open.is_empty() {
        return Ok(());
    }
    if let Some(drain) = &mut pass.status.drain {
        let before = nodes.first().filter(|_| drain.cordoned && drain.cordoned_nodes.is_empty());
        let new = before.into_iter().chain(open.iter().copied()).map(|node| name_of(node));
        let new = new.filter(|_| nodes.len() > 1 || !drain.cordoned_nodes.is_empty());
        let mut all: BTreeSet<_> = new.collect();
        all.extend(std::mem::take(&mut drain.cordoned_nodes));
        drain.cordoned_nodes = all.into_iter().collect();
        drain.cordoned = true;
    }
    let lives_on = !is_for(pass, &DrainPurpose::Deletion);
    if lives_on && !stored(pass).is_some_and(|drain| drain.cordoned) {
        // Our authorship is recorded before the cordon: else no core would uncordon the Node.
        pass.step(Some(MachineStep::CordonNode));
        return Err(wait(WaitReason::NodeNotCordoned, None, Some(pass.snap.now)));
    }
    for node in open {
        pass.effects.node_patch(node).cordon = true;
    }
    if force {
        return Ok(());
    }
    pass.step(Some(MachineStep::CordonNode));
    // Pods that were bound before the cordon are seen after it only.
    Err(wait(WaitReason::NodeNotCordoned, None, None))
}

/// Asks the pods to leave. `Ok`: no pod is waited for any more; with whether force was needed.
///
/// # Errors
/// Pods are left: the wait for them.
pub(crate) fn evict_pods(pass: &mut Pass<'_>, force: bool) -> Outcome<bool> {
    let Observed::Known(pods) = &pass.snap.pods else {
        // A deletion by force does not wait for a look.
        if force && pass.machine.is_deleting() {
            return Ok(true);
        }
        return Err(not_looked_up(pass));
    };
    if !force && pass.snap.api.is_down_for_long() {
        let what = format!("no pod is evicted while {}", pass.snap.api.describe());
        return Err(wait(WaitReason::ApiServerUnreachable, Some(what), Some(look_again(pass))));
    }
    for pod in pods.iter().filter(|pod| selection::is_left_over(pod)) {
        request_eviction(pass, pod);
    }
    for pod in selection::lost(pass.snap) {
        pass.effects.act(Action::DeletePod(reference(pod)));
    }
    let leaving = leaving(pass.snap);
    if !leaving.is_empty() || pass.status.step != Some(MachineStep::DetachVolumes) {
        pass.step(Some(MachineStep::DrainNode));
    }
    if !leaving.is_empty() && !saw_pods(pass) {
        let nodes = pass.nodes();
        let kind = if nodes.len() > 1 { "nodes" } else { "node" };
        let (names, pods) = (node::names(nodes), numbered(leaving.len(), "pod"));
        let text = format!("draining {kind} {names}: evicting {pods}");
        pass.effects.event_on_node(false, EventReason::DrainStarted, text);
    }
    if !leaving.is_empty() && !force && !is_written(pass) {
        // The deadline comes before the first eviction.
        return Err(wait(WaitReason::PodsTerminating, None, Some(pass.snap.now)));
    }
    if force {
        for pod in &leaving {
            pass.effects.act(Action::DeletePod(reference(pod)));
        }
        return Ok(!leaving.is_empty());
    }
    if leaving.is_empty() { Ok(false) } else { Err(evict(pass, &leaving)) }
}

/// The wait until the pods of the Node were read from the API server.
pub(crate) fn not_looked_up(pass: &Pass<'_>) -> Transition {
    let what = "the pods of the node have not been listed yet".to_owned();
    wait(WaitReason::NotObserved, Some(what), Some(look_again(pass)))
}

/// No event says that an API server would answer now.
pub(crate) fn look_again(pass: &Pass<'_>) -> Timestamp {
    after(pass.snap.now, pass.snap.settings.eviction_retry)
}

/// Whether the drain has had pods to wait for. A drain that never had any is not worth an event.
fn saw_pods(pass: &Pass<'_>) -> bool {
    pass.status.drain.as_ref().is_some_and(|drain| drain.pods_left > 0)
}

/// Writes down that nothing is waited for any more.
pub(crate) fn finish(pass: &mut Pass<'_>, forced: bool) -> &'static str {
    let told = forced || saw_pods(pass);
    if let Some(drain) = &mut pass.status.drain {
        *drain = DrainProgress { forced, finished: true, ..drain.renewed() };
    }
    let (event, reason, text) = if forced {
        (EventReason::DrainForced, "Forced", "pods were deleted without grace")
    } else {
        (EventReason::Drained, "Drained", "all pods that had to leave the node are gone")
    };
    conditions::set(pass, &DRAINED, !forced, reason, text);
    if told {
        pass.effects.event_on_node(forced, event, text.to_owned());
    }
    text
}

/// Records that volumes were still attached at the deadline, and are not waited for.
pub(crate) fn finish_with_volumes(pass: &mut Pass<'_>, text: &str) {
    if let Some(drain) = &mut pass.status.drain {
        drain.forced = true;
    }
    conditions::set(pass, &DRAINED, false, "VolumesNotDetached", text);
    pass.effects.event_on_node(true, EventReason::VolumesForced, text.to_owned());
}

/// Takes over the drain that another controller finished.
pub(crate) fn take_over(pass: &mut Pass<'_>, forced: bool) {
    pass.status.drain = Some(DrainProgress { forced, finished: true, ..DrainProgress::default() });
}

/// When the drain ends by force; `None`: there is none.
pub(crate) fn deadline(pass: &Pass<'_>) -> Option<Timestamp> {
    let drain = pass.status.drain.as_ref();
    let held = drain.and_then(|drain| drain.counts_from.as_ref());
    let deleted = pass.machine.metadata.deletion_timestamp.as_ref();
    let begun = drain.and_then(|drain| drain.started_at.as_ref());
    let from = held.or(deleted).or(begun)?.0;
    let timeout = after(from, limit(pass));
    Some(announced_end(pass).filter(|end| *end > from).map_or(timeout, |end| end.min(timeout)))
}

/// When the infrastructure ends the instance, if it said so: pods have no longer than that.
fn announced_end(pass: &Pass<'_>) -> Option<Timestamp> {
    let notice = pass.status.instance_notice.as_ref();
    let ends = notice.filter(|it| it.reason == NoticeReason::TerminationNotice)?;
    ends.effective_at.as_ref().map(|at| at.0)
}

fn limit(pass: &Pass<'_>) -> Duration {
    let own = pass.machine.spec.drain_timeout.as_ref().and_then(Timeout::duration);
    own.unwrap_or(pass.snap.settings.drain_timeout)
}

/// Whether the deadline has passed.
pub(crate) fn is_overdue(pass: &Pass<'_>) -> bool {
    deadline(pass).is_some_and(|deadline| pass.snap.now >= deadline)
}

/// Whether a deletion was to have emptied the Node by now.
pub(crate) fn is_over(pass: &Pass<'_>) -> bool {
    is_overdue(pass) || pass.machine.wants_force()
}

/// Whether a deletion goes on whatever the cluster of the Node says.
pub(crate) fn is_forced(pass: &Pass<'_>) -> bool {
    pass.machine.is_deleting()
        && if pass.nodes().is_empty() { is_over(pass) } else { must_force(pass) }
}

/// Whether pods are to be deleted without grace and without waiting: no kubelet ends one on a Node
/// that is lost. Where another Node of the instance is not, its pods have their time.
pub(crate) fn must_force(pass: &Pass<'_>) -> bool {
    let asked = if pass.machine.is_deleting() {
        pass.machine.wants_force()
    } else {
        pass.machine.label(label::FORCE_DRAIN) == Some("True")
    };
    let nodes = pass.nodes();
    let lost = !nodes.is_empty() && nodes.into_iter().all(|node| is_lost(pass, node));
    asked || is_overdue(pass) || lost
}

/// Whether the Node has been lost for `unreachable_after`.
pub(crate) fn is_lost(pass: &Pass<'_>, node: &Node) -> bool {
    selection::is_lost(node, pass.snap.now, &pass.snap.settings)
}

fn reference(pod: &PodView) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

/// Asks a pod to leave, with its own grace.
fn request_eviction(pass: &mut Pass<'_>, pod: &PodView) {
    let pod = reference(pod);
    pass.effects.act(if pass.snap.can_evict { Action::Evict(pod) } else { Action::EndPod(pod) });
}

/// Asks the pods whose turn it is to leave, and reports the pods that are left.
/// [`record_evictions`](super::record_evictions) adds the outcome of the requests.
fn evict(pass: &mut Pass<'_>, leaving: &[&PodView]) -> Transition {
    let order = EvictionOrder::of(pass, leaving);
    let tries = most_tries(pass);
    let mut soonest = [deadline(pass), order.hold.as_ref().and_then(|hold| hold.until)]
        .into_iter()
        .flatten()
        .min();
    let mut again = |at: Timestamp| soonest = Some(soonest.map_or(at, |other| other.min(at)));
    for pod in leaving {
        if pod.terminating {
            progress::changes_at(pass, pod).into_iter().for_each(&mut again);
            continue;
        }
        if !order.may_go(pod) {
            continue;
        }
        match &pod.refused {
            Some(refusal) if pass.snap.now < next_try(refusal, &pass.snap.settings) => {
                again(next_try(refusal, &pass.snap.settings));
            }
            refused => {
                again(after(pass.snap.now, pass.snap.settings.eviction_retry));
                if refused.as_ref().map_or(0, |it| it.by_budgets(pass.status.drain.as_ref()))
                    >= tries
                {
                    pass.effects.act(Action::DeletePod(reference(pod)));
                } else {
                    request_eviction(pass, pod);
                }
            }
        }
    }
    let now = pass.snap.now;
    let drain = pass.status.drain.as_mut();
    let failure = drain.and_then(|drain| progress::tally(drain, leaving, |_| None, now));
    let (reason, text) = match (order.hold, &pass.status.drain) {
        (Some(hold), _) => (hold.reason, Some(hold.message)),
        (None, drain) => {
            let text = drain.as_ref().map(|drain| progress::describe(drain, failure));
            (progress::reason(drain.as_ref()), text)
        }
    };
    wait(reason, text, soonest)
}

/// When an eviction that failed is tried again.
fn next_try(refusal: &EvictionRefusal, settings: &Settings) -> Timestamp {
    /// The API server cannot be asked for more: the awaited event may come earlier.
    const MOST: Duration = Duration::from_mins(2);
    if refusal.lifted {
        return refusal.at;
    }
    let doublings = u32::try_from(refusal.attempts.saturating_sub(1)).unwrap_or(0).min(10);
    let usual = settings.eviction_retry.saturating_mul(1 << doublings);
    let usual = usual.min(settings.eviction_retry_max);
    let said = refusal.retry_after.filter(|wait| !wait.is_zero());
    after(refusal.at, said.map_or(usual, |wait| wait.clamp(settings.eviction_retry, MOST)))
}

/// How many evictions of a pod budgets may refuse before the pod is deleted without grace. As many as the drain timeout
/// has room for, or more, is no limit of its own: the deadline comes first.
fn most_tries(pass: &Pass<'_>) -> i32 {
    let own = pass.machine.spec.max_evict_retries.unwrap_or(pass.snap.settings.max_evict_retries);
    let every = pass.snap.settings.eviction_retry_max.as_secs().max(1);
    let fit = i32::try_from(limit(pass).as_secs() / every).unwrap_or(i32::MAX);
    if own >= fit { i32::MAX } else { own.max(0) }
}
