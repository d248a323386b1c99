//! A user paused the Machine or its class: nothing is sent and nothing is changed, neither at the
//! infrastructure nor at the Node. A driver's answer to an earlier operation is still recorded:
//! forgetting it would lose an instance.

use ostler_api::{
    machine::{MachineStep, WaitReason},
    names::annotation::PAUSED,
};

use super::{
    State,
    pass::Pass,
    transition::{Outcome, wait},
};

/// Goes on unless the Machine is paused. `state`: where the answer of a driver, if there was one,
/// has moved it.
pub(crate) fn hold(pass: &mut Pass<'_>, state: State) -> Outcome<()> {
    let Some(message) = pause_message(pass) else { return Ok(()) };
    if state == State::Initializing {
        // Else the core would not know later that the instance of this create was never
        // initialized.
        pass.step(Some(MachineStep::InitializeInstance));
    }
    pass.effects.nodes.clear();
    Err(wait(WaitReason::Paused, Some(message), None))
}

fn pause_message(pass: &Pass<'_>) -> Option<String> {
    if pass.machine.is_paused() {
        return Some(format!("by annotation {PAUSED} on the machine; remove it to go on"));
    }
    let class = pass.snap.class.known().filter(|class| class.paused)?;
    Some(format!("by annotation {PAUSED} on machine class {}; remove it to go on", class.name))
}
