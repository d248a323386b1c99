//! A MachineHealthCheck found the Machine unhealthy. It is given up for that as for the health timeout: where its Node
//! was there, within the replacement budget; where none came, as for the creation timeout.

use ostler_api::{
    machine::{FailureReason, MachineOperationType},
    machine_health_check::UnhealthyMark,
};

use super::{
    State, own_node,
    pass::Pass,
    transition::{Outcome, Transition, fail},
};
use crate::health_check::{exempt, holds};

/// The finding of a check against the Machine, while it is true.
pub(crate) fn evidence(pass: &Pass<'_>) -> Option<UnhealthyMark> {
    let mark = pass.machine.unhealthy_mark()?;
    holds(&mark, pass.machine, &pass.snap.node, pass.snap.ids.by()).then_some(mark)
}

/// The same, unless nothing is to follow from it.
pub(crate) fn verdict(pass: &Pass<'_>) -> Option<UnhealthyMark> {
    evidence(pass).filter(|_| exempt(pass.machine, pass.snap.now).is_none())
}

/// The faults of the existing Nodes, by themselves or by a check.
pub(crate) fn complaint(pass: &Pass<'_>) -> Option<String> {
    own_node::complaint(pass).or_else(|| verdict(pass).map(|mark| words(&mark)))
}

/// Gives up a Machine whose Node did not come in the time that a check allows.
///
/// # Errors
/// The Machine is given up. Not while a driver works for it, or an API server is away.
pub(crate) fn follow(pass: &Pass<'_>, state: State) -> Outcome<()> {
    let waits = matches!(state, State::Creating | State::Initializing | State::Joining);
    let api = &pass.snap.api;
    let blind = api.down_since.is_some() || api.settles_at(pass.snap.now).is_some();
    match verdict(pass).filter(|_| waits && !blind && !pass.is_working()) {
        Some(mark) => Err(give_up(&mark, MachineOperationType::Create)),
        None => Ok(()),
    }
}

/// The end of the Machine.
pub(crate) fn give_up(mark: &UnhealthyMark, type_: MachineOperationType) -> Transition {
    fail(FailureReason::HealthCheck, type_, words(mark))
}

/// For people.
fn words(mark: &UnhealthyMark) -> String {
    format!("machine health check {}: {}", mark.check, mark.message)
}
