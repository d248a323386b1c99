//! Deletion: the volumes leave the Node, so that they can be attached elsewhere.

use ostler_api::machine::{MachineStep, WaitReason};

use super::{
    State, draining,
    pass::{Pass, Turn, after},
};
use crate::snapshot::Observed;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Turn {
    let Some(node) = pass.node() else { return Turn::To(State::Deleting) };
    if draining::must_force(pass.snap, node) {
        return Turn::To(State::Deleting);
    }
    let what = match &pass.snap.attached_volumes {
        Observed::Absent => return Turn::To(State::Deleting),
        Observed::Known(volumes) if volumes.is_empty() => return Turn::To(State::Deleting),
        Observed::Known(volumes) => format!("{} volumes are attached", volumes.len()),
        Observed::Unknown => "the volumes of the node were not looked up yet".to_owned(),
    };
    pass.step(Some(MachineStep::DetachVolumes));
    let since = pass.status.step_since.as_ref().map_or(pass.snap.now, |time| time.0);
    let until = after(since, pass.snap.settings.detach_timeout);
    if pass.snap.now >= until {
        return Turn::To(State::Deleting);
    }
    pass.wait(WaitReason::VolumesAttached, Some(what), Some(until))
}
