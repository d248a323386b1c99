//! Given up. Nothing is done for the Machine until a user deletes it; the MachineSet replaces it.
//! Only a Machine given up for its Node, and not replaced when the Node is healthy again, runs on.

use ostler_api::machine::WaitReason;

use super::{
    State, conditions, evacuating, own_node,
    pass::Pass,
    preserving, token,
    transition::{Outcome, Transition, wait},
    unhealthy,
};

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if let Some(node) = pass.serving() {
        own_node::unless_deleted(pass)?;
        conditions::copy_from_node(pass, node);
        if unhealthy::has_recovered(pass) {
            own_node::enter(pass);
            return Ok(Transition::To(State::Running));
        }
    }
    token::delete(pass);
    preserving::follow_wish(pass);
    let why = pass.status.failure_reason.as_ref().map(ToString::to_string);
    let Some(until) = preserving::until(pass) else {
        return Ok(wait(WaitReason::Failed, why, None));
    };
    evacuating::plan(pass)?;
    Ok(wait(WaitReason::Preserved, why, Some(until)))
}
