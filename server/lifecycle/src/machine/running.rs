//! The Node exists, or existed: keep the Node up to date, and watch its health.

use k8s_openapi::api::core::v1::Node;
use ostler_api::machine::{MachinePhase, WaitReason};

use super::{
    State, adoption, checked, closed, in_place, instance, instance_check, own_node,
    pass::Pass,
    pool_update, token,
    transition::{Outcome, Transition, wait},
    unhealthy, updating,
};
use crate::{node, plan::Next, snapshot::TargetView};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    instance_check::find_id(pass)?;
    let without_node = pass.status.machine_phase() == MachinePhase::Available;
    if without_node && pass.snap.target == TargetView::None && pool_update::is_due(pass) {
        return Ok(Transition::To(State::InPlace));
    }
    if let Some(what) = instance::stopped(pass) {
        return unhealthy::plan(pass, WaitReason::InstanceNotReady, what);
    }
    let Some(node) = own_node::observe(pass)? else {
        let (reason, complaint) = own_node::missing(pass);
        return unhealthy::plan(pass, reason, &complaint);
    };
    match checked::complaint(pass) {
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
    own_node::open(pass);
    token::delete(pass);
    if pool_update::is_due(pass) || in_place::is_chosen(pass, node) {
        return Ok(Transition::To(State::InPlace));
    }
    adoption::plan(pass)?;
    let outcome = updating::plan(pass)?;
    let Transition::Rest(next) = &outcome else { return Ok(outcome) };
    let Some((reason, text)) = remark(pass) else { return Ok(outcome) };
    let until = if let Next::Wait { until, .. } = next { Some(*until) } else { None };
    Ok(wait(reason, Some(text), until))
}

/// A remark for a person about a running Machine without a wait.
fn remark(pass: &Pass<'_>) -> Option<(WaitReason, String)> {
    if pass.nodes().len() > 1 {
        return Some((WaitReason::NodeAmbiguous, node::describe_several(pass.nodes())));
    }
    closed::why(pass).map(|why| (WaitReason::NodeUnschedulable, why))
}
