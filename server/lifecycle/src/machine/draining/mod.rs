//! Deletion: no new pods on the Node, then the pods leave.

pub(crate) mod drain;
mod eviction_order;
mod progress;
mod recorded;
mod selection;

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{DrainPurpose, MachineStep, WaitReason},
    names,
};

use super::{
    State, conditions, health, hooks,
    last_operation::Activity,
    pass::Pass,
    preconditions,
    takeover::Upstream,
    transition::{Outcome, Transition, wait},
};
use crate::{
    node,
    plan::Action,
    snapshot::{NodeView, Observed, TargetView},
};
use drain::is_finished;
pub(crate) use drain::{deadline, is_forced, is_overdue, must_force};
pub(crate) use recorded::record_evictions;
pub use selection::is_last_look;
pub(crate) use selection::leaving;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if is_finished(pass, &DrainPurpose::Deletion) {
        return Ok(Transition::To(State::Detaching));
    }
    match &pass.snap.node {
        NodeView::Unknown if is_unseen_for_good(pass) => {
            return Ok(Transition::To(State::Deleting));
        }
        NodeView::Unknown => unless_unseen(pass)?,
        NodeView::Ambiguous(nodes) if pass.nodes().is_empty() && !drain::is_over(pass) => {
            let text = node::describe_several(nodes.iter().map(AsRef::as_ref));
            return Ok(wait(WaitReason::NodeAmbiguous, Some(text), deadline(pass)));
        }
        NodeView::Ambiguous(_) | NodeView::Absent | NodeView::Known(_) | NodeView::Several(..) => {}
    }
    if pass.nodes().is_empty() {
        return Ok(Transition::To(State::Deleting));
    }
    hooks::hold(pass, hooks::PRE_DRAIN)?;
    begin(pass);
    let force = must_force(pass);
    if pass.snap.pods.known().is_some() && leaving(pass.snap).is_empty() {
        release_idle(pass);
    } else {
        mark_terminating(pass);
    }
    drain::cordon(pass, force)?;
    let forced = drain::evict_pods(pass, force)?;
    let text = drain::finish(pass, forced);
    let next = if forced { Upstream::Detach } else { Upstream::DeleteVm };
    pass.show(Activity::Delete(text, next));
    Ok(Transition::To(State::Detaching))
}

/// Repeats the drain before the instance is deleted: an ended drain begins again if a user uncordoned the Node, or if
/// pods are there again that have to leave. The deadline stays. A drain reported by another controller counts as done:
/// the instance may be gone by now.
pub(crate) fn repeat_if_needed(pass: &mut Pass<'_>) -> Outcome<()> {
    let drain = pass.status.drain.as_ref().filter(|drain| drain.started_at.is_some());
    let (false, Some(drain)) = (pass.nodes().is_empty(), drain) else { return Ok(()) };
    let counts_from = drain.counts_from.clone();
    if must_force(pass) {
        return Ok(());
    }
    if pass.nodes().into_iter().all(selection::is_cordoned) {
        if !matches!(pass.snap.pods, Observed::Known(_)) {
            return Err(drain::not_looked_up(pass));
        }
        if leaving(pass.snap).is_empty() {
            return Ok(());
        }
    }
    drain::begin(pass, DrainPurpose::Deletion, counts_from);
    pass.show(Activity::Delete("pods came after the drain", Upstream::Drain));
    Err(Transition::To(State::Draining))
}

/// The time of a pre-drain hook costs the drain timeout nothing.
fn begin(pass: &mut Pass<'_>) {
    let held = pass.status.step == Some(MachineStep::PreDrainHook);
    let now = pass.now();
    if let (true, Some(drain)) = (held, &mut pass.status.drain) {
        drain.counts_from = Some(now.clone());
    }
    drain::begin(pass, DrainPurpose::Deletion, held.then_some(now));
}

/// Whether the target cluster cannot be read and is no longer waited for: a cluster that is gone must not keep its
/// machines. A machine without any known Node does not wait at all for a cluster whose secret is gone. A watched
/// cluster exists: a request that fails while its API server answers is made again.
pub(crate) fn is_unseen_for_good(pass: &Pass<'_>) -> bool {
    let (snap, over) = (pass.snap, drain::is_over(pass));
    match &snap.target {
        TargetView::None => false,
        TargetView::Watched => {
            over && snap.api.is_down_for_long() && matches!(snap.node, NodeView::Unknown)
        }
        TargetView::Lacking { reason, .. } => {
            let gone =
                matches!(reason, WaitReason::TargetUnnamed | WaitReason::TargetSecretMissing);
            let node_seen = pass.machine.status.as_ref().is_some_and(conditions::has_any_of_a_node);
            over || (gone && !node_seen)
        }
    }
}

/// Goes on unless the Node was not looked up yet and is still waited for.
pub(crate) fn unless_unseen(pass: &Pass<'_>) -> Outcome<()> {
    if !matches!(pass.snap.node, NodeView::Unknown) || is_unseen_for_good(pass) {
        return Ok(());
    }
    let asks = pass.snap.target == TargetView::Watched;
    let until = if asks { Some(drain::look_again(pass)) } else { deadline(pass) };
    Err(preconditions::unseen(pass.snap, "nodes").until(until))
}

/// No pod has to leave the Nodes: the finalizer, which keeps one there for the drain, goes with the cordon, no event
/// tells of a drain, and what the status would say is over with the next pass.
fn release_idle(pass: &mut Pass<'_>) {
    for node in pass.nodes().into_iter().filter(|node| !selection::is_cordoned(node)) {
        pass.effects.node_patch(node).remove_finalizer = health::has_finalizer(node);
        pass.effects.status_waits = true;
    }
}

/// Marks the Nodes as terminating. Nothing waits for the mark.
pub(crate) fn mark_terminating(pass: &mut Pass<'_>) {
    let is_marked = |node: &Node| {
        health::conditions(node)
            .iter()
            .any(|one| one.type_ == names::node_condition::TERMINATING && one.status == "True")
    };
    let Some(cause) = pass.status.deletion_cause.clone() else { return };
    for node in pass.nodes().into_iter().filter(|node| !is_marked(node)) {
        let name = node.metadata.name.clone().unwrap_or_default();
        pass.effects.act_last(Action::MarkNode { name, cause: cause.clone() });
    }
}
