//! The Node is, or was, there: keep it as it has to be, and watch its health.

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{MachinePhase, WaitReason},
    names,
};

use super::{
    State, adoption, checked, health, in_place, instance_check, own_node,
    pass::Pass,
    pool_update, token,
    transition::{Outcome, Transition},
    unhealthy, updating,
};
use crate::{plan::Next, snapshot::TargetView};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    instance_check::find_id(pass)?;
    let without_node = pass.status.machine_phase() == MachinePhase::Available;
    if without_node && pass.snap.target == TargetView::None && pool_update::is_due(pass) {
        return Ok(Transition::To(State::InPlace));
    }
    let Some(node) = own_node::observe(pass)? else {
        return unhealthy::plan(pass, WaitReason::NodeMissing, "the node is gone");
    };
    match checked::complaint(pass, node) {
        Some(complaint) => unhealthy::plan(pass, WaitReason::NodeUnhealthy, &complaint),
        None => healthy(pass, node),
    }
}

fn healthy(pass: &mut Pass<'_>, node: &Node) -> Outcome {
    use MachinePhase::{Available, InPlaceUpdateSuccessful, Running, Unknown};
    let phase = pass.status.machine_phase();
    if !matches!(phase, Running | Unknown | Available | InPlaceUpdateSuccessful) {
        return Ok(Transition::Rest(Next::OnChange));
    }
    if phase == InPlaceUpdateSuccessful {
        in_place::conclude(pass, node)?;
    }
    if phase == Unknown {
        in_place::resume(pass, node)?;
    }
    if phase != Running {
        own_node::enter(pass);
    }
    if health::has_taint(node, names::taint::INSTANCE_NOT_READY) {
        pass.effects.node_patch.remove_not_ready_taint = true;
    }
    token::delete(pass);
    if pool_update::is_due(pass) || in_place::is_chosen(pass, node) {
        return Ok(Transition::To(State::InPlace));
    }
    adoption::plan(pass)?;
    updating::plan(pass)
}
