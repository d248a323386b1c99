//! When time alone decides about a Machine. Whatever it waits for, and for however long: it is looked at then.

use jiff::Timestamp;
use ostler_api::machine::{MachinePhase, WaitReason};

use super::{draining, in_place, pass::Pass, unhealthy};
use crate::plan::Next;

/// The next pass comes no later than at the next deadline. Past deadlines are seen by the pass itself.
pub(crate) fn wake(pass: &Pass<'_>, next: Next) -> Next {
    let ahead = of(pass).into_iter().flatten().filter(|at| *at > pass.snap.now).min();
    let Some(at) = ahead else { return next };
    let waits = pass.status.waiting_for.as_ref().map(|it| it.reason.clone());
    next.by(waits.unwrap_or(WaitReason::DriverWorking), at)
}

/// The end of the creation, of a drain, of the time for an update in place and of the health timeout.
fn of(pass: &Pass<'_>) -> [Option<Timestamp>; 2] {
    use MachinePhase::{
        Available, CrashLoopBackOff, Failed, InPlaceUpdateFailed, InPlaceUpdateSuccessful,
        InPlaceUpdating, New, Other, Pending, Running, Terminating, Unknown,
    };
    let drain = pass.status.drain.as_ref();
    let drains = || drain.is_some_and(|it| it.started_at.is_some() && !it.finished);
    let drain = draining::deadline(pass).filter(|_| drains());
    // A driver that works is not interrupted: its answer wakes the Machine.
    let works = || pass.is_working() || pass.effects.dispatch.is_some();
    let end = match pass.status.machine_phase() {
        _ if pass.machine.is_deleting() => None,
        New | Pending | CrashLoopBackOff | Other(_) => {
            pass.creation_deadline().filter(|_| !works())
        }
        Unknown => unhealthy::due(pass),
        InPlaceUpdating => Some(in_place::due(pass).0),
        Available
        | Failed
        | InPlaceUpdateFailed
        | InPlaceUpdateSuccessful
        | Running
        | Terminating => None,
    };
    [drain, end]
}
