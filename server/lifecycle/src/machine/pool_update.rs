//! The instance of a pool is updated in place: the pods leave its Node, then the pool has the driver change it, and the
//! Node takes pods again once it is healthy. The marks of the pool say when that begins, and when the instance has the model.

use ostler_api::machine::{DrainPurpose, MachinePhase, MachineStep, WaitReason};

use super::{
    State, checked,
    draining::drain,
    in_place,
    last_operation::Activity,
    own_node,
    pass::Pass,
    transition::{Outcome, Transition, wait},
    unhealthy,
};
use crate::{plan::EventReason, pool::is_begun, snapshot::TargetView};

/// Whether the update's turn has come, or it is not over yet.
pub(crate) fn is_due(pass: &Pass<'_>) -> bool {
    use MachinePhase::{InPlaceUpdateFailed, InPlaceUpdating};
    let phase = pass.status.machine_phase();
    let runs = matches!(phase, InPlaceUpdating | InPlaceUpdateFailed)
        && pass.status.step == Some(MachineStep::UpdateInstance);
    pass.machine.has_pool() && (is_begun(pass.machine) || runs)
}

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    let phase = pass.status.machine_phase();
    if pass.snap.target == TargetView::None {
        return Ok(without_node(pass));
    }
    if phase == MachinePhase::Running {
        if pass.node().is_none() {
            return Ok(in_place::wait_for_node(pass));
        }
        return empty(pass);
    }
    let complaint = match own_node::observe(pass)? {
        Some(_) if phase == MachinePhase::InPlaceUpdateFailed => checked::complaint(pass),
        Some(_) => own_node::complaint(pass),
        None => Some(own_node::missing(pass).1),
    };
    match (is_begun(pass.machine), complaint) {
        (false, None) => Ok(end(pass)),
        (_, Some(complaint)) if phase == MachinePhase::InPlaceUpdateFailed => {
            unhealthy::plan(pass, WaitReason::NodeUnhealthy, &complaint)
        }
        (begun, complaint) => Ok(go_on(pass, begun, complaint)),
    }
}

/// Nothing is to be drained, and nothing but the driver says when the instance is as it is to be.
fn without_node(pass: &mut Pass<'_>) -> Transition {
    let begun = is_begun(pass.machine);
    if !begun {
        drain::forget(pass, &DrainPurpose::InPlaceUpdate);
        if is_current(pass) {
            in_place::show_success(pass);
        }
        pass.machine_phase(&MachinePhase::Available);
        pass.step(None);
        return Transition::To(State::Running);
    }
    if pass.status.machine_phase() == MachinePhase::Available {
        begin(pass);
    }
    go_on(pass, begun, None)
}

/// The pods leave, as in a deletion, and the volumes after them.
fn empty(pass: &mut Pass<'_>) -> Outcome {
    in_place::empty_node(pass, None)?;
    begin(pass);
    Ok(go_on(pass, true, None))
}

fn begin(pass: &mut Pass<'_>) {
    pass.machine_phase(&MachinePhase::InPlaceUpdating);
    let text = pass.show(Activity::UpdateInPlace);
    pass.effects.event_on_node(false, EventReason::InPlaceUpdateReady, text);
    pass.step(Some(MachineStep::UpdateInstance));
}

fn is_current(pass: &Pass<'_>) -> bool {
    pass.status.instance.as_ref().is_some_and(|it| it.latest_model_applied)
}

/// The pool sees by the step that the driver may be asked. The pool goes on asking also once the time is over.
fn go_on(pass: &mut Pass<'_>, begun: bool, complaint: Option<String>) -> Transition {
    let (due, limit) = in_place::due(pass);
    if pass.snap.now >= due || pass.status.machine_phase() == MachinePhase::InPlaceUpdateFailed {
        let minutes = limit.as_secs() / 60;
        let name = pass.name();
        let text = format!("Machine {name} failed to in-place update in {minutes} minutes");
        return in_place::report_failure(pass, &text);
    }
    let what = if begun {
        "the pool has the driver update the instance"
    } else {
        "the instance is updated"
    };
    let state = complaint.map(|it| format!("; now {it}")).unwrap_or_default();
    wait(WaitReason::NodeUpdating, Some(format!("{what}{state}")), Some(due))
}

/// The next pass looks at the Node anew and restores it.
fn end(pass: &mut Pass<'_>) -> Transition {
    if is_current(pass) {
        return in_place::succeed(pass);
    }
    drain::give_back(pass, &DrainPurpose::InPlaceUpdate);
    pass.machine_phase(&MachinePhase::Running);
    pass.step(None);
    in_place::wait_for_node(pass)
}
