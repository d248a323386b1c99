//! The Node of a Machine that joined: which one it is, and that it is kept as it has to be.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{MachineOperationType, MachinePhase, MachineState, WaitReason},
    names,
};

use super::{
    adoption, conditions, health, instance,
    last_operation::Activity,
    node_notes, node_template,
    pass::Pass,
    preserving, retry, token,
    transition::{Outcome, Transition, wait},
    updating, well_formed,
};
use crate::{
    node,
    plan::{Action, EventReason, Next},
    snapshot::{NodeView, TargetView},
    time::after,
};

/// For how long a Node still has the taints that it joined with.
const JUST_JOINED: Duration = Duration::from_secs(30);

/// The Node is healthy for the first time, or again.
pub(crate) fn enter(pass: &mut Pass<'_>) {
    let first = !has_run(pass);
    let joined = if first { Activity::Joined } else { Activity::Rejoined };
    let text = pass.show(joined);
    pass.effects.event(false, EventReason::NodeJoined, text);
    pass.machine_phase(&MachinePhase::Running);
    pass.step(None);
    retry::clear(pass);
}

/// Whether the Node was healthy before.
pub(crate) fn has_run(pass: &Pass<'_>) -> bool {
    pass.status.last_operation.as_ref().is_none_or(|last| {
        last.type_ != Some(MachineOperationType::Create)
            || last.state == Some(MachineState::Successful)
    })
}

/// The instance is there, and there is no cluster for a Node of it.
pub(crate) fn enter_without_node(pass: &mut Pass<'_>) {
    let text = pass.show(Activity::RunsWithoutNode);
    pass.effects.event(false, EventReason::Available, text);
    pass.machine_phase(&MachinePhase::Available);
    pass.step(None);
    retry::clear(pass);
}

/// Everything that the Node of a Machine carries, as one write.
pub(crate) fn update(pass: &mut Pass<'_>, node: &Node) {
    let alone = pass.effects.node_patch.is_empty();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if pass.machine.node_name() != Some(name) {
        instance::label_node(pass, name);
    }
    if node.metadata.deletion_timestamp.is_none() && !health::has_finalizer(node) {
        pass.effects.node_patch.add_finalizer = true;
    }
    let labels = node.metadata.labels.as_ref();
    let labelled = labels.and_then(|all| all.get(names::label::MACHINE_NAME));
    if labelled.map(String::as_str) != Some(pass.name()) && well_formed::label_value(pass.name()) {
        pass.effects.node_patch.label_machine = true;
    }
    note_cluster(pass, node);
    note_critical_components(pass, node);
    if node.metadata.deletion_timestamp.is_none() {
        node_template::apply(pass, node);
    }
    if alone {
        pass.effects.upkeep = pass.effects.node_patch.clone();
    }
    instance::set_default_priority(pass);
}

/// Whose finalizer it is, beside it. Of two cores that call a Node theirs, neither takes the note from the other.
fn note_cluster(pass: &mut Pass<'_>, node: &Node) {
    let ids = &pass.snap.cluster;
    let noted = node_notes::annotation_of(node, names::annotation::CLUSTER_ID);
    let takes = pass.effects.node_patch.add_finalizer && noted != Some(&ids.own);
    if takes || noted.is_none_or(|id| ids.was(id)) {
        let key = names::annotation::CLUSTER_ID.to_owned();
        pass.effects.node_patch.annotations.insert(key, Some(ids.own.clone()));
    }
}

/// On the Node, where a client that writes statuses does not erase it, in the first write to it. A Node that another
/// controller saw join, or none, has no note.
fn note_critical_components(pass: &mut Pass<'_>, node: &Node) {
    let has = health::has_taint(node, names::taint::CRITICAL_COMPONENTS_NOT_READY);
    let born = node.metadata.creation_timestamp.as_ref();
    let joins = born.is_some_and(|born| pass.snap.now < after(born.0, JUST_JOINED));
    if joins && pass.effects.node_patch.add_finalizer && !has_run(pass)
        || has && !node::has_critical_components(node)
    {
        let key = names::annotation::CRITICAL_COMPONENTS.to_owned();
        pass.effects.node_patch.annotations.insert(key, Some(has.to_string()));
    }
}

/// The Node, kept as it has to be; `None`: it is gone. Once in a pass.
///
/// # Errors
/// There is none, it is not known which one it is, or it is being deleted: the pass is over.
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
            let text = format!("several nodes match this machine: {}", nodes.join(", "));
            return Err(wait(WaitReason::NodeAmbiguous, Some(text), None));
        }
        NodeView::Absent | NodeView::Known(_) => {}
    }
    preserving::follow_wish(pass);
    let Some(node) = pass.node() else { return Ok(None) };
    if node.metadata.deletion_timestamp.is_some() {
        return Err(follow(pass, node));
    }
    update(pass, node);
    conditions::copy_from_node(pass, node);
    Ok(Some(node))
}

/// A user who deletes the Node wants the Machine gone.
pub(crate) fn follow(pass: &mut Pass<'_>, node: &Node) -> Transition {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    pass.effects.event(false, EventReason::NodeDeleted, format!("node {name} was deleted"));
    pass.effects.act_last(Action::DeleteMachine);
    Transition::Rest(Next::OnChange)
}

/// Only the driver can say more about the machine.
fn without_node(pass: &mut Pass<'_>) -> Outcome {
    let phase = pass.status.machine_phase();
    if matches!(phase, MachinePhase::Running | MachinePhase::Unknown) {
        // It had a target cluster before.
        enter_without_node(pass);
    } else if phase != MachinePhase::Available {
        return Ok(Transition::Rest(Next::OnChange));
    }
    token::delete(pass);
    adoption::plan(pass)?;
    updating::plan(pass)
}
