//! The volumes leave the Node, so that they can be attached elsewhere. A deletion waits for the volumes for as long as
//! its drain may take; afterwards, or with force, the volumes are taken from the Node, and an event says so.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use ostler_api::machine::{MachineStep, WaitReason};

use super::{
    State,
    draining::{self, drain},
    last_operation::Activity,
    pass::Pass,
    takeover::Upstream,
    transition::{Outcome, Transition, wait},
};
use crate::{
    plan::{Action, EventReason},
    snapshot::Observed,
    time::after,
    volume::{VolumesView, is_volume},
};

/// How long force waits for a look at the VolumeAttachments.
const FORCED_PATIENCE: Duration = Duration::from_secs(30);
/// How many volumes a message names.
const MOST_NAMES: usize = 3;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    draining::unless_unseen(pass)?;
    if pass.nodes().is_empty() {
        return Ok(Transition::To(State::Deleting));
    }
    if pass.status.step == Some(MachineStep::DetachVolumes) {
        // Pods that came since have volumes as well.
        draining::repeat_if_needed(pass)?;
    }
    let forced = pass.status.drain.as_ref().is_some_and(|drain| drain.forced);
    let force = forced || draining::must_force(pass);
    let late = !forced && draining::is_overdue(pass) && !pass.machine.wants_force();
    let Some(Left { reason, what, until }) = left(pass) else {
        if pass.status.step == Some(MachineStep::DetachVolumes) {
            pass.show(Activity::Delete("the volumes are detached", Upstream::DeleteVm));
        }
        return Ok(Transition::To(State::Deleting));
    };
    pass.step(Some(MachineStep::DetachVolumes));
    if late {
        record_force(pass, &what);
    }
    if force {
        return Ok(force_detach(pass));
    }
    // machine-controller-manager, should it take over, waits for volumes within its drain.
    pass.show(Activity::Delete("volumes are attached", Upstream::Drain));
    let until = draining::deadline(pass).into_iter().chain(until).min();
    Ok(wait(reason, Some(what), until))
}

/// Before a Node is updated in place, or kept for examination: as long as volumes of pods that left
/// it are attached, no other Node can use them. Nothing is taken from a Node that lives on.
pub(crate) fn wait_for_detach(pass: &mut Pass<'_>) -> Outcome<()> {
    let Some(Left { reason, what, .. }) = left(pass) else { return Ok(()) };
    pass.step(Some(MachineStep::DetachVolumes));
    let until = after(since(pass), pass.snap.settings.detach_timeout);
    if pass.snap.now >= until {
        pass.effects.event_on_node(
            true,
            EventReason::VolumesNotDetached,
            format!("going on without waiting any longer: {what}"),
        );
        return Ok(());
    }
    Err(wait(reason, Some(what), Some(until)))
}

fn since(pass: &Pass<'_>) -> Timestamp {
    pass.status.step_since.as_ref().map_or(pass.snap.now, |time| time.0)
}

/// Volumes that are waited for.
struct Left {
    reason: WaitReason,
    what: String,
    /// When to look again even if nothing changes.
    until: Option<Timestamp>,
}

/// The volumes to wait for; `None`: no volume is attached any more.
fn left(pass: &Pass<'_>) -> Option<Left> {
    let left = match attached(pass) {
        Ok(left) => left,
        Err(until) => {
            let what = "the volumes of the node have not been listed yet".to_owned();
            return Some(Left { reason: WaitReason::VolumesNotObserved, what, until });
        }
    };
    let some: Vec<&str> = left.iter().take(MOST_NAMES).map(String::as_str).collect();
    let more = match left.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!("volumes still attached: {}{more}", some.join(", "));
    // The time counts on while nothing more is known.
    let observed = pass.snap.volumes.known().is_some();
    let reason =
        if observed { WaitReason::VolumesAttached } else { WaitReason::VolumesNotObserved };
    let until = None;
    (!left.is_empty()).then_some(Left { reason, what, until })
}

/// Volumes that are attached to the Node and not used by pods that stay there. A volume in detachment shows only in its
/// VolumeAttachment.
///
/// # Errors
/// The volumes were not looked up yet. Until when that is waited for, if not for as long as a drain waits.
fn attached(pass: &Pass<'_>) -> Result<BTreeSet<String>, Option<Timestamp>> {
    let snap = pass.snap;
    let none = VolumesView::default();
    // No longer than volumes that do not leave.
    let view = match (&snap.volumes, pass.waits_for_volumes_until(snap.settings.detach_timeout)) {
        (Observed::Known(view), _) => view,
        (Observed::Unknown | Observed::Absent, None) => &none,
        (Observed::Unknown | Observed::Absent, until) => return Err(until),
    };
    let attached = match &snap.attached_volumes {
        Observed::Unknown => return Err(None),
        Observed::Absent => &[],
        Observed::Known(attached) => attached.as_slice(),
    };
    let attachments = view.attachments.iter();
    let by_attachment =
        attachments.map(|one| one.volume.clone().unwrap_or_else(|| one.name.clone()));
    let all = attached.iter().map(|one| volume_name(pass, view, one)).chain(by_attachment);
    let staying = volumes_that_stay(pass, view);
    Ok(all.filter(|name| !staying.contains(name.as_str())).collect())
}

/// The PersistentVolume of an entry of `node.status.volumesAttached`, or else the entry itself.
fn volume_name(pass: &Pass<'_>, view: &VolumesView, attached: &str) -> String {
    let followed = pass.status.drain.iter().flat_map(|drain| &drain.volumes);
    let followed = followed.map(|one| (one.name.as_str(), one.id.as_deref()));
    let claimed = view.claims.values().map(|one| (one.name.as_str(), one.csi_handle.as_deref()));
    let found = followed
        .chain(claimed)
        .find(|(_, id)| id.is_some_and(|id| is_volume(attached, id)))
        .map(|(name, _)| name);
    found.unwrap_or(attached).to_owned()
}

/// Volumes of pods that a drain leaves alone: they are detached with the instance and no earlier.
fn volumes_that_stay<'a>(pass: &Pass<'_>, view: &'a VolumesView) -> BTreeSet<&'a str> {
    let pods = pass.snap.pods.known().map(Vec::as_slice).unwrap_or_default();
    let stay = pods.iter().filter(|pod| pod.mirror || pod.daemon);
    let claims = stay.flat_map(|pod| &pod.claims);
    claims.filter_map(|claim| view.claims.get(claim)).map(|facts| facts.name.as_str()).collect()
}

fn record_force(pass: &mut Pass<'_>, what: &str) {
    let text = format!("volumes are detached by force: {what}");
    pass.show(Activity::Delete(&text, Upstream::Detach));
    drain::finish_with_volumes(pass, &text);
}

/// Takes the volumes from the Node by deleting their VolumeAttachments, and does not wait for it.
fn force_detach(pass: &mut Pass<'_>) -> Transition {
    let snap = pass.snap;
    let Observed::Known(view) = &snap.volumes else {
        let Some(until) = pass.waits_for_volumes_until(FORCED_PATIENCE) else {
            return Transition::To(State::Deleting);
        };
        let what = "volume attachments have not been listed yet".to_owned();
        return wait(WaitReason::VolumesNotObserved, Some(what), Some(until));
    };
    for one in view.attachments.iter().filter(|one| !one.deleting) {
        let (name, uid) = (one.name.clone(), one.uid.clone());
        pass.effects.act(Action::DeleteAttachment { name, uid });
    }
    Transition::To(State::Deleting)
}
