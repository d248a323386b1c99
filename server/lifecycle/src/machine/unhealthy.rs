//! The Node is not healthy, or not there: wait for it, and give up when it had time enough. Time in
//! which no Node could report does not count, and no two Machines of a MachineDeployment
//! are given up at the same time.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{FailureReason, MachineOperationType, MachinePhase, WaitReason},
    names,
    timeout::Timeout,
};

use super::{
    checked, health, instance_check,
    last_operation::Activity,
    own_node,
    pass::Pass,
    transition::{Outcome, Transition, fail, wait},
};
use crate::{
    plan::{Action, EventReason, Next},
    replacement,
    snapshot::NodeView,
    time::after,
};

pub(crate) fn plan(pass: &mut Pass<'_>, reason: WaitReason, complaint: &str) -> Outcome {
    use MachinePhase::{Available, InPlaceUpdateFailed, InPlaceUpdateSuccessful, Running, Unknown};
    let phase = pass.status.machine_phase();
    if matches!(phase, Running | Available | InPlaceUpdateSuccessful | InPlaceUpdateFailed) {
        enter(pass, complaint);
    } else if phase != Unknown {
        return Ok(Transition::Rest(Next::OnChange));
    }
    unless_frozen(pass, complaint)?;
    let look = instance_check::check(pass)?;
    let verdict = checked::verdict(pass);
    let Some(due) = verdict.as_ref().map(|mark| mark.since.0).into_iter().chain(due(pass)).min()
    else {
        return Ok(wait(reason, Some(complaint.to_owned()), look));
    };
    if pass.snap.now < due {
        let until = look.map_or(due, |look| look.min(due));
        return Ok(wait(reason, Some(complaint.to_owned()), Some(until)));
    }
    if pass.snap.api.down_since.is_some() {
        // Not long enough to report; the next check wakes this Machine.
        return Ok(wait(reason, Some(complaint.to_owned()), None));
    }
    if let Some(until) = pass.snap.api.settles_at(pass.snap.now) {
        return Ok(wait(reason, Some(complaint.to_owned()), Some(until)));
    }
    let (siblings, patience) = (&pass.snap.siblings, pass.snap.settings.creation_timeout);
    if let Some(held) = replacement::held(siblings, due, pass.snap.now, patience) {
        let text = format!(
            "{complaint}; it fails as soon as the replacement budget allows: {}",
            held.message
        );
        return Ok(wait(held.reason, Some(text), Some(held.until)));
    }
    confirm(pass);
    if let Some(mark) = verdict {
        return Ok(checked::give_up(&mark, MachineOperationType::HealthCheck));
    }
    let text = format!("unhealthy for longer than the health timeout: {complaint}");
    Ok(fail(FailureReason::HealthTimeout, MachineOperationType::HealthCheck, text))
}

fn enter(pass: &mut Pass<'_>, complaint: &str) {
    pass.machine_phase(&MachinePhase::Unknown);
    let text = pass.show(Activity::Unhealthy(complaint));
    pass.effects.event(true, EventReason::NodeUnhealthy, text);
}

fn unless_frozen(pass: &Pass<'_>, complaint: &str) -> Outcome<()> {
    if !pass.snap.api.frozen {
        return Ok(());
    }
    let text = format!("{complaint}; no machine fails while {}", pass.snap.api.describe());
    let until = pass.snap.api.settles_at(pass.snap.now);
    Err(wait(WaitReason::ApiServerUnreachable, Some(text), until))
}

/// When the health timeout ends, with the time that was lost to outages; `None`: never.
pub(crate) fn due(pass: &Pass<'_>) -> Option<Timestamp> {
    if pass.machine.spec.disable_health_timeout == Some(true) {
        return None;
    }
    let own = pass.machine.spec.health_timeout.as_ref().and_then(Timeout::duration);
    let limit = own.unwrap_or(pass.snap.settings.health_timeout);
    let current = pass.status.current_status.as_ref();
    let since = current.and_then(|current| current.last_update_time.as_ref());
    let since = since.map_or(pass.snap.now, |time| time.0);
    Some(after(after(since, limit), pass.snap.api.lost(since, pass.snap.now)))
}

/// The last look is at the API itself: a watch that hangs shows a Node as it was.
fn confirm(pass: &mut Pass<'_>) {
    for (name, version) in nodes_to_confirm(pass) {
        pass.effects.act(Action::ConfirmNode { name, version });
    }
    if let Some(deployment) = &pass.snap.siblings.deployment {
        let (deployment, seen) = (deployment.clone(), pass.snap.siblings.last_failure);
        pass.effects.act_last(Action::ClaimReplacement { deployment, seen });
    }
}

/// Names of the Nodes and the versions that were seen, `None` for none.
fn nodes_to_confirm(pass: &Pass<'_>) -> Vec<(String, Option<String>)> {
    if pass.snap.node == NodeView::Absent {
        let name = pass.machine.node_name();
        return name.map(|name| (name.to_owned(), None)).into_iter().collect();
    }
    let seen = |node: &Arc<Node>| {
        let meta = &node.metadata;
        Some((meta.name.clone()?, meta.resource_version.clone()))
    };
    pass.snap.node.all().into_iter().filter_map(seen).collect()
}

/// Whether a Failed Machine is fine after all: it was given up for its Node, and the Node is
/// healthy. A Machine without a reason was given up by another controller, which gives up only for
/// the Node.
pub(crate) fn has_recovered(pass: &Pass<'_>) -> bool {
    let for_its_node = pass.status.failure_reason.as_ref().is_none_or(|reason| {
        use FailureReason::{HealthCheck, HealthTimeout, JoinTimeout};
        matches!(reason, HealthTimeout | JoinTimeout | HealthCheck)
    });
    for_its_node
        && checked::evidence(pass).is_none()
        && own_node::complaint(pass).is_none()
        && (pass.has_run()
            || pass.serving().is_some_and(|node| {
                !health::has_taint(node, names::taint::CRITICAL_COMPONENTS_NOT_READY)
            }))
}
