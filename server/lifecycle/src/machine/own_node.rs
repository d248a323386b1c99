//! The Node of a joined Machine: health, finalizer, labels, annotations and taints.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{MachineConditionType, MachinePhase, WaitReason},
    names,
};

use super::{
    adoption, closed, conditions, health, instance,
    last_operation::Activity,
    lost, node_notes, node_template,
    pass::Pass,
    preserving, retry, token,
    transition::{Outcome, Transition, wait},
    updating,
};
use crate::{
    node,
    plan::{Action, EventReason, Next},
    snapshot::{NodeView, TargetView},
    time::after,
    well_formed,
};

/// For how long a Node still has the taints that it joined with.
const JUST_JOINED: Duration = Duration::from_secs(30);

/// The Node is healthy for the first time, or again.
pub(crate) fn enter(pass: &mut Pass<'_>) {
    let first = !pass.has_run();
    let joined = if first { Activity::Joined } else { Activity::Rejoined };
    let text = pass.show(joined);
    pass.effects.event(false, EventReason::NodeJoined, text);
    pass.machine_phase(&MachinePhase::Running);
    pass.step(None);
    retry::clear(pass);
    lost::forget(pass);
}

/// The instance exists, and there is no cluster for its Node.
pub(crate) fn enter_without_node(pass: &mut Pass<'_>) {
    let text = pass.show(Activity::RunsWithoutNode);
    pass.effects.event(false, EventReason::Available, text);
    pass.machine_phase(&MachinePhase::Available);
    pass.step(None);
    retry::clear(pass);
    lost::forget(pass);
}

/// All upkeep of the Node of a Machine, as a single write.
pub(crate) fn update(pass: &mut Pass<'_>, node: &Node) {
    let alone = pass.effects.node_patch(node).is_empty();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    instance::name_node(pass, name);
    if node.metadata.deletion_timestamp.is_none() && !health::has_finalizer(node) {
        pass.effects.node_patch(node).add_finalizer = true;
    }
    let labels = node.metadata.labels.as_ref();
    let labelled = labels.and_then(|all| all.get(names::label::MACHINE_NAME));
    if labelled.map(String::as_str) != Some(pass.name()) && well_formed::label_value(pass.name()) {
        pass.effects.node_patch(node).label_machine = true;
    }
    note_cluster(pass, node);
    note_critical_components(pass, node);
    closed::note_joined(pass, node);
    if node.metadata.deletion_timestamp.is_none() {
        node_template::apply(pass, node);
    }
    note_machine(pass, node);
    if alone {
        keep_up(pass, node);
    }
    instance::set_default_priority(pass);
}

/// Health does not wait for the changes so far.
fn keep_up(pass: &mut Pass<'_>, node: &Node) {
    let effects = pass.effects.node(node);
    effects.upkeep = effects.patch.clone();
}

/// The content of the instance's other Nodes: the taints of the template. Labels and annotations attract pods, and any
/// kubelet may claim the provider id of another Node.
pub(crate) fn update_others(pass: &mut Pass<'_>) {
    let own = pass.node().and_then(|node| node.metadata.name.as_ref());
    for node in pass.nodes().into_iter().filter(|node| node.metadata.name.as_ref() != own) {
        if node.metadata.deletion_timestamp.is_some() {
            pass.effects.node_patch(node).remove_finalizer = health::has_finalizer(node);
        } else {
            node_template::apply_taints(pass, node);
        }
        keep_up(pass, node);
    }
}

/// The Nodes of the instance that are healthy take pods.
pub(crate) fn open(pass: &mut Pass<'_>) {
    let settings = &pass.snap.settings;
    for node in pass.nodes() {
        let healthy = health::complaint(node, pass.machine, settings).is_none();
        if healthy && health::has_taint(node, names::taint::INSTANCE_NOT_READY) {
            pass.effects.node_patch(node).remove_not_ready_taint = true;
        }
    }
}

/// The faults of the instance's Nodes; `None`: a Node is healthy, or there is none.
pub(crate) fn complaint(pass: &Pass<'_>) -> Option<String> {
    let complaint = |node: &Node| health::complaint(node, pass.machine, &pass.snap.settings);
    let of_serving = pass.serving().and_then(complaint)?;
    let nodes = pass.nodes();
    let all = nodes.iter().all(|node| complaint(node).is_some());
    let several =
        if nodes.len() > 1 { format!(" of {}", node::names(nodes)) } else { String::new() };
    all.then(|| format!("{of_serving}{several}"))
}

/// Why no Node is the Machine's any more, in words and as a reason.
pub(crate) fn missing(pass: &Pass<'_>) -> (WaitReason, String) {
    if let NodeView::Ambiguous(nodes) = &pass.snap.node {
        let text = node::describe_several(nodes.iter().map(AsRef::as_ref));
        return (WaitReason::NodeAmbiguous, format!("{text}; none is ready"));
    }
    (WaitReason::NodeMissing, "the node is gone".to_owned())
}

/// Names the Nodes of the instance if they are several, at any time of the life.
pub(crate) fn tell_several(pass: &mut Pass<'_>) {
    let complaint = match &pass.snap.node {
        NodeView::Unknown => return,
        NodeView::Ambiguous(nodes) => Some(node::describe_several(nodes.iter().map(AsRef::as_ref))),
        NodeView::Absent | NodeView::Known(_) | NodeView::Several(..) => {
            let nodes = pass.nodes();
            (nodes.len() > 1).then(|| node::describe_several(nodes))
        }
    };
    let (type_, event) = (MachineConditionType::NodeAmbiguous, EventReason::NodeAmbiguous);
    conditions::set_complaint(pass, &type_, "SeveralNodes", event, complaint);
}

/// Notes the cluster id beside the finalizer. Two cores that claim the same Node never overwrite each other's note.
fn note_cluster(pass: &mut Pass<'_>, node: &Node) {
    let ids = &pass.snap.cluster;
    let noted = node_notes::annotation_of(node, names::annotation::CLUSTER_ID);
    let takes = pass.effects.node_patch(node).add_finalizer && noted != Some(&ids.own);
    if takes || noted.is_none_or(|id| ids.was(id)) {
        let key = names::annotation::CLUSTER_ID.to_owned();
        pass.effects.node_patch(node).annotations.insert(key, Some(ids.own.clone()));
    }
}

/// Annotations by which Cluster API's autoscaler finds the Machine of a Node. Only a write due anyway carries the
/// annotations.
fn note_machine(pass: &mut Pass<'_>, node: &Node) {
    if pass.effects.node_patch(node).is_empty() || node.metadata.deletion_timestamp.is_some() {
        return;
    }
    let namespace = pass.machine.metadata.namespace.clone().unwrap_or_default();
    let notes = [
        (names::annotation::MACHINE_OF_NODE, pass.name().to_owned()),
        (names::annotation::CLUSTER_NAMESPACE, namespace),
    ];
    for (key, value) in notes {
        if node_notes::annotation_of(node, key) != Some(&value) {
            pass.effects.node_patch(node).annotations.insert(key.to_owned(), Some(value));
        }
    }
}

/// On the Node, where a client that writes statuses does not erase it, in the first write to it. A Node that another
/// controller saw join, or none, has no note.
fn note_critical_components(pass: &mut Pass<'_>, node: &Node) {
    let has = health::has_taint(node, names::taint::CRITICAL_COMPONENTS_NOT_READY);
    let born = node.metadata.creation_timestamp.as_ref();
    let joins = born.is_some_and(|born| pass.snap.now < after(born.0, JUST_JOINED));
    let first = pass.effects.node_patch(node).add_finalizer;
    if joins && first && !pass.has_run() || has && !node::has_critical_components(node) {
        let key = names::annotation::CRITICAL_COMPONENTS.to_owned();
        pass.effects.node_patch(node).annotations.insert(key, Some(has.to_string()));
    }
}

/// The Node by which the Machine is judged, and every Node of its instance kept as it has to be; `None`: it is gone. Once
/// in a pass.
///
/// # Errors
/// No Node, an ambiguous Node, or a Node in deletion ends the pass.
pub(crate) fn observe<'a>(pass: &mut Pass<'a>) -> Outcome<Option<&'a Node>> {
    match &pass.snap.target {
        TargetView::None => return Err(without_node(pass)?),
        TargetView::Lacking { reason, message } => {
            return Err(wait(reason.clone(), Some(message.clone()), None));
        }
        TargetView::Watched => {}
    }
    match &pass.snap.node {
        NodeView::Unknown => return Err(Transition::Rest(Next::OnChange)),
        NodeView::Ambiguous(nodes) => {
            let of_instance = pass.nodes();
            // A ready Node runs the pods of the instance, whichever Node is the right one.
            if of_instance.is_empty() || of_instance.into_iter().any(node::is_ready) {
                let text = node::describe_several(nodes.iter().map(AsRef::as_ref));
                return Err(wait(WaitReason::NodeAmbiguous, Some(text), None));
            }
        }
        NodeView::Absent | NodeView::Known(_) | NodeView::Several(..) => {}
    }
    preserving::follow_wish(pass);
    let (Some(node), Some(serving)) = (pass.node(), pass.serving()) else { return Ok(None) };
    unless_deleted(pass)?;
    if node.metadata.deletion_timestamp.is_none() {
        update(pass, node);
    }
    update_others(pass);
    conditions::copy_from_node(pass, serving);
    Ok(Some(serving))
}

/// A user who deletes the Node wants the Machine gone. Where the VM came back as another, ready Node, only the Node
/// with the silent kubelet goes.
///
/// # Errors
/// The Machine is deleted, too.
pub(crate) fn unless_deleted(pass: &mut Pass<'_>) -> Outcome<()> {
    let (Some(node), Some(serving)) = (pass.node(), pass.serving()) else { return Ok(()) };
    if node.metadata.deletion_timestamp.is_none() {
        return Ok(());
    }
    if serving.metadata.name == node.metadata.name {
        return Err(follow(pass, node));
    }
    pass.effects.node_patch(node).remove_finalizer = health::has_finalizer(node);
    Ok(())
}

fn follow(pass: &mut Pass<'_>, node: &Node) -> Transition {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    pass.effects.event(false, EventReason::NodeDeleted, format!("node {name} was deleted"));
    pass.effects.act_last(Action::DeleteMachine);
    Transition::Rest(Next::OnChange)
}

/// Only the driver can say more about the machine.
fn without_node(pass: &mut Pass<'_>) -> Outcome {
    let phase = pass.status.machine_phase();
    if matches!(phase, MachinePhase::Running | MachinePhase::Unknown) {
        // The Machine runs again, or had a target cluster before.
        enter_without_node(pass);
    } else if phase != MachinePhase::Available {
        return Ok(Transition::Rest(Next::OnChange));
    }
    token::delete(pass);
    adoption::plan(pass)?;
    updating::plan(pass)
}
