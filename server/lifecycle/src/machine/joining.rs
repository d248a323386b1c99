//! The instance exists and is initialized; its Node has to come and be healthy.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{FailureReason, MachineOperationType, MachinePhase, MachineStep, WaitReason},
    names,
};

use super::{
    State, conditions,
    draining::drain,
    finishing, health, instance, instance_check,
    last_operation::Activity,
    lost, own_node,
    pass::Pass,
    pooled, preconditions, preserving,
    reading::Reading,
    token,
    transition::{Outcome, Transition, fail, wait},
};
use crate::{
    node,
    operation::InstanceRecord,
    plan::EventReason,
    snapshot::{NodeView, TargetView},
    time::after,
};

/// Writes down that the instance is there.
pub(crate) fn enter(pass: &mut Pass<'_>) {
    pass.step(Some(MachineStep::JoinNode));
    pass.machine_phase(&MachinePhase::Pending);
    pass.show(Activity::Join);
}

/// A read found the instance.
pub(crate) fn found(record: &InstanceRecord) -> State {
    if record.initialized == Some(false) { State::Initializing } else { State::Joining }
}

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if matches!(pass.learned.reading, Some(Reading::NotFound)) {
        // Without an id, the driver reported an instance without naming it, and takes the report back.
        let unnamed = pass.machine.provider_id().is_none();
        let gone = pass.nodes().is_empty() && made_and_gone(pass);
        if gone {
            lost::record(pass)?;
        }
        if unnamed || gone {
            return Ok(Transition::To(State::Creating));
        }
    }
    if pass.nodes().into_iter().any(health::is_registered) {
        token::delete(pass);
    } else {
        token::keep_alive(pass);
    }
    instance_check::find_id(pass)?;
    if pass.snap.target == TargetView::None {
        return without_nodes(pass);
    }
    let snap = pass.snap;
    let (reason, message) = match &snap.node {
        NodeView::Unknown => {
            let lack = preconditions::unseen(pass.snap, "nodes");
            (lack.reason, lack.message)
        }
        NodeView::Ambiguous(nodes) => {
            (WaitReason::NodeAmbiguous, node::describe_several(nodes.iter().map(AsRef::as_ref)))
        }
        NodeView::Absent => (WaitReason::NodeNotJoined, not_joined(pass)),
        NodeView::Known(node) | NodeView::Several(node, _) => match joined(pass, node) {
            None => {
                own_node::enter(pass);
                return Ok(Transition::To(State::Running));
            }
            Some(complaint) => complaint,
        },
    };
    let unseen = matches!(snap.node, NodeView::Unknown);
    // The instance has a running Node; a person must say which Node is the Machine's. A new instance would have the
    // same problem.
    let mismatch = reason == WaitReason::ProviderIdMismatch;
    let runs = pass.node().is_none() && pass.nodes().into_iter().any(node::is_ready)
        || mismatch && snap.node.main().is_some_and(|node| node::is_ready(node));
    let overdue = pass.creation_overdue() && !pass.is_working() && !unseen && !runs;
    let remnant = finishing::stale_node(pass).filter(|node| {
        !overdue && node.metadata.deletion_timestamp.is_none() && drain::is_lost(pass, node)
    });
    if let Some(node) = remnant {
        // Nothing is behind it, and while it is there the new instance cannot register.
        finishing::delete_node(pass, node);
        return wait_for_node(pass, reason, message);
    }
    if reason == WaitReason::NodeStale && stale_for_long(pass) {
        return Ok(fail(FailureReason::StaleNode, MachineOperationType::Create, message));
    }
    if overdue {
        let text = format!("no healthy node within the creation timeout: {message}");
        let text = lost::with_losses(pass, &text);
        return Ok(fail(FailureReason::JoinTimeout, MachineOperationType::Create, text));
    }
    wait_for_node(pass, reason, message)
}

/// Without a cluster for its Node, a Machine runs as soon as its instance does.
fn without_nodes(pass: &mut Pass<'_>) -> Outcome {
    if let Some(what) = pooled::not_running(pass) {
        return Ok(wait_for_instance(pass, what));
    }
    if let Some(what) = instance::stopped(pass) {
        if pass.creation_overdue() && !pass.is_working() {
            return Ok(wait_for_instance(pass, what.to_owned()));
        }
        return wait_for_node(pass, WaitReason::InstanceNotReady, what.to_owned());
    }
    own_node::enter_without_node(pass);
    Ok(Transition::To(State::Running))
}

/// There is no Node to wait for: the pool says when the instance runs.
fn wait_for_instance(pass: &mut Pass<'_>, what: String) -> Transition {
    if pass.creation_overdue() {
        let text = format!("not running within the creation timeout: {what}");
        return fail(FailureReason::CreationTimeout, MachineOperationType::Create, text);
    }
    wait(WaitReason::InstanceNotReady, Some(what), pass.creation_deadline())
}

/// Names the Node for which the Machine waits.
fn not_joined(pass: &Pass<'_>) -> String {
    let id = pass.instance_id().map(|id| format!("spec.providerID {id}"));
    let name = node::expected_name(pass.machine).map(|name| format!("name {name}"));
    let counts: Vec<_> = id.into_iter().chain(name).collect();
    format!("waiting for a Node with {}{}", counts.join(" or "), twin(pass))
}

/// Another Machine whose instance has an id that is the same by the driver's own comparison.
fn twin(pass: &Pass<'_>) -> String {
    let name = pass.snap.ids.twin.as_deref();
    name.map_or_else(String::new, |name| {
        format!("; machine {name} has a provider id that the driver calls equal, so only the same letters count")
    })
}

/// The driver made the instance and no longer finds it after enough time, or itself reported the instance as gone.
fn made_and_gone(pass: &Pass<'_>) -> bool {
    if matches!(pass.snap.node, NodeView::Unknown | NodeView::Ambiguous(_)) {
        return false;
    }
    let hint = pass.snap.hint.as_ref().filter(|hint| hint.asked);
    let named = hint.is_some_and(|it| it.lost.is_some() && it.lost.as_ref() == pass.instance_id());
    let told = named && !instance::may_be_hidden(pass);
    let made = instance::created_at(pass).is_some();
    made && (told || instance::catching_up(pass).is_none()) && !pass.creation_overdue()
}

/// How long a Node that an older instance left behind may take to go. While it is there, the new
/// instance cannot register.
const STALE_NODE: Duration = Duration::from_mins(5);

/// The objection to a Node of the right name or nearly the right provider id.
fn describe_stale(pass: &Pass<'_>, node: &Node) -> (WaitReason, String) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let instance = pass.instance_id();
    if let (Some(own), Some(id)) = (instance, node::spelled_otherwise(instance, node)) {
        let message = format!(
            "the driver says {own}, and node {name} says {id}: set the provider id of the kubelet (--provider-id, or the \
             cloud controller that writes it) to what the driver says, or let the driver say the same{}",
            twin(pass)
        );
        return (WaitReason::ProviderIdMismatch, message);
    }
    let whose = match node::provider_id(node) {
        Some(id) => format!("belongs to instance {id}"),
        None => "is older than this machine".to_owned(),
    };
    let message = format!("node {name} {whose} and is not used; delete it if it is not needed");
    (WaitReason::NodeStale, message)
}

fn stale_for_long(pass: &Pass<'_>) -> bool {
    let since = pass.has_waited_since(&WaitReason::NodeStale);
    since.is_some_and(|since| pass.snap.now >= after(since, STALE_NODE)) && !pass.is_working()
}

/// `None`: the Node is there and healthy.
fn joined(pass: &mut Pass<'_>, there: &Node) -> Option<(WaitReason, String)> {
    let Some(node) = pass.node() else { return Some(describe_stale(pass, there)) };
    own_node::update(pass, node);
    own_node::update_others(pass);
    preserving::follow_wish(pass);
    let node = pass.serving().unwrap_or(node);
    conditions::copy_from_node(pass, node);
    if let Some(complaint) = own_node::complaint(pass) {
        return Some((WaitReason::NodeNotReady, complaint));
    }
    let taint = names::taint::CRITICAL_COMPONENTS_NOT_READY;
    health::has_taint(node, taint)
        .then(|| (WaitReason::CriticalComponentsNotReady, format!("the node has taint {taint}")))
}

/// Waits for the Node, and from time to time looks whether the instance is unchanged.
fn wait_for_node(pass: &mut Pass<'_>, reason: WaitReason, message: String) -> Outcome {
    pass.unless_working()?;
    let deadline = pass.creation_deadline().filter(|deadline| *deadline > pass.snap.now);
    let every = pass.snap.settings.join_check;
    if pass.learned.reading.is_some() && was_waiting(pass) {
        instance_check::record(pass);
    }
    let mut check = after(last_check(pass), every);
    if is_missed(pass)
        && let Some(at) = instance::caught_up_at(pass).filter(|at| last_check(pass) < *at)
    {
        check = check.min(at);
    }
    let (reason, message) = match pass.learned.reading.take() {
        Some(Reading::NotFound) => {
            let mut text = "the driver does not find the instance any more".to_owned();
            // The driver's list may lag behind a creation.
            if let Some(until) = instance::catching_up(pass) {
                let whole = Timestamp::from_second(until.as_second()).unwrap_or(until);
                text = format!(
                    "the driver made the instance and does not find it; if so at {whole}, it is made again"
                );
            }
            (WaitReason::InstanceMissing, text)
        }
        Some(Reading::Found(InstanceRecord { fault: Some(fault), .. })) => {
            (WaitReason::InstanceFaulty, format!("{}: {}", fault.code, fault.text()))
        }
        Some(
            Reading::Found(_) | Reading::Uninitialized | Reading::CannotRead | Reading::Failed(_),
        ) => (reason, message),
        None => {
            let due = pass.snap.now >= check;
            if let (true, Some(class)) = (due, preconditions::class_to_read(pass.snap)) {
                return Ok(pass.send_read(class));
            }
            last_reported(pass).unwrap_or((reason, message))
        }
    };
    let check = if check > pass.snap.now { check } else { after(pass.snap.now, every) };
    let until = deadline.map_or(check, |deadline| deadline.min(check));
    // A Node that is in the way is for a person to see to.
    let event = matches!(reason, WaitReason::NodeStale | WaitReason::ProviderIdMismatch);
    let wait = wait(reason, Some(message), Some(until));
    Ok(if event { wait.with_event(EventReason::Waiting) } else { wait })
}

/// Whether the pass began in the wait for the Node.
fn was_waiting(pass: &Pass<'_>) -> bool {
    let before = pass.machine.status.as_ref().and_then(|status| status.step.as_ref());
    before == Some(&MachineStep::JoinNode)
}

/// When the driver was last asked, or else the wait began: however often something wakes the
/// Machine, the driver is asked once in a while.
fn last_check(pass: &Pass<'_>) -> Timestamp {
    let since = pass.status.step_since.as_ref().map_or(pass.snap.now, |time| time.0);
    pass.status.instance_checked_at.as_ref().map_or(since, |asked| asked.0.max(since))
}

/// Whether the driver did not find the instance when it was asked last.
fn is_missed(pass: &Pass<'_>) -> bool {
    match &pass.learned.reading {
        Some(reading) => matches!(reading, Reading::NotFound),
        None => last_reported(pass).is_some_and(|it| it.0 == WaitReason::InstanceMissing),
    }
}

/// The driver's last report on the instance, until the next question and without a Node.
fn last_reported(pass: &Pass<'_>) -> Option<(WaitReason, String)> {
    let said = pass.machine.status.as_ref()?.waiting_for.as_ref()?;
    let of_instance =
        matches!(said.reason, WaitReason::InstanceMissing | WaitReason::InstanceFaulty);
    let there = pass.node().is_some();
    (of_instance && !there).then(|| (said.reason.clone(), said.message.clone().unwrap_or_default()))
}
