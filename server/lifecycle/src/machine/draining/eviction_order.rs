//! The turn of pods with volumes: highest priority first, and the next only when the volumes of the pods before have
//! left the Node and are where they are wanted. Pods of equal priority go together; a pod held by a budget, or a pod
//! that does not end in time, does not hold the others.

use jiff::Timestamp;
use ostler_api::{
    driver::OperationKind,
    machine::{DrainVolume, WaitReason},
};

use super::super::{pass::Pass, preconditions};
use crate::{
    pod::PodView,
    snapshot::{ClassFacts, Observed},
    time::after,
    volume::{VolumesView, is_volume},
};

/// Volumes that are followed at most. No infrastructure attaches more than 128 to an instance; the step after the drain
/// waits for the rest.
const MOST_VOLUMES: usize = 256;

/// The pods that may be evicted now.
#[derive(Debug)]
pub(super) struct EvictionOrder {
    open: Open,
    /// The reason for pods with volumes to wait.
    pub(super) hold: Option<EvictionWait>,
}

#[derive(Debug)]
enum Open {
    /// All pods may go.
    All,
    /// Pods with volumes may go from this priority on, or if asked before.
    From(i32),
    /// Pods with volumes may go only if asked before.
    None,
}

#[derive(Debug)]
pub(super) struct EvictionWait {
    pub(super) reason: WaitReason,
    pub(super) message: String,
    pub(super) until: Option<Timestamp>,
}

impl EvictionOrder {
    /// Records the state of the volumes, and chooses the pods to evict now.
    pub(super) fn of(pass: &mut Pass<'_>, leaving: &[&PodView]) -> Self {
        let snap = pass.snap;
        let queue: Vec<&PodView> =
            leaving.iter().copied().filter(|pod| !pod.claims.is_empty()).collect();
        let Observed::Known(view) = &snap.volumes else {
            return if queue.iter().any(|pod| is_to_be_asked(pod)) {
                Self::not_observed(pass)
            } else {
                Self::all()
            };
        };
        follow(pass, view, &queue);
        if let Some(hold) = resolve_volume_ids(pass, view) {
            return Self { open: Open::None, hold: Some(hold) };
        }
        update_volumes(pass, view);
        let holds = |pod: &&&PodView| pod.refused.is_none() && !is_given_up(pass, pod);
        let next = queue.iter().filter(holds).map(|pod| pod.priority).max();
        let Some(next) = next else { return Self::all() };
        match pending(pass, view, next) {
            Some(hold) => Self { open: Open::None, hold: Some(hold) },
            None => Self { open: Open::From(next), hold: None },
        }
    }

    const fn all() -> Self {
        Self { open: Open::All, hold: None }
    }

    /// Volumes that cannot be looked up hold nothing for longer than volumes that do not leave.
    fn not_observed(pass: &Pass<'_>) -> Self {
        let until = pass.waits_for_volumes_until(pass.snap.settings.detach_timeout);
        if until.is_none() {
            return Self::all();
        }
        let message = "the volumes of the pods have not been listed yet".to_owned();
        let hold = EvictionWait { reason: WaitReason::VolumesNotObserved, message, until };
        Self { open: Open::None, hold: Some(hold) }
    }

    /// Whether this pod may be asked to leave.
    pub(super) fn may_go(&self, pod: &PodView) -> bool {
        if pod.claims.is_empty() || pod.refused.is_some() {
            return true;
        }
        match self.open {
            Open::All => true,
            Open::From(priority) => pod.priority >= priority,
            Open::None => false,
        }
    }
}

const fn is_to_be_asked(pod: &PodView) -> bool {
    !pod.terminating && pod.refused.is_none()
}

/// Until when a terminating pod holds the next pods: as upstream, until after its grace and the time for its volumes.
pub(super) fn holds_until(pass: &Pass<'_>, pod: &PodView) -> Option<Timestamp> {
    let ends_at = pod.ends_at.filter(|_| !pod.claims.is_empty())?;
    Some(after(ends_at, pass.snap.settings.detach_timeout))
}

fn is_given_up(pass: &Pass<'_>, pod: &PodView) -> bool {
    holds_until(pass, pod).is_some_and(|until| pass.snap.now >= until)
}

/// Begins to follow the volumes of pods that have to leave, while the pods can still be asked.
fn follow(pass: &mut Pass<'_>, view: &VolumesView, queue: &[&PodView]) {
    let Some(drain) = &mut pass.status.drain else { return };
    for pod in queue {
        for claim in &pod.claims {
            let Some(facts) = view.claims.get(claim) else { continue };
            let known = drain.volumes.iter().any(|volume| volume.name == facts.name);
            if !known && drain.volumes.len() < MOST_VOLUMES {
                drain.volumes.push(DrainVolume {
                    name: facts.name.clone(),
                    claim: claim.clone(),
                    priority: pod.priority,
                    ..DrainVolume::default()
                });
            }
        }
    }
}

/// Finds the infrastructure's names of the volumes: from the driver if able, else, and for foreign volumes, from their
/// CSI handles.
fn resolve_volume_ids(pass: &mut Pass<'_>, view: &VolumesView) -> Option<EvictionWait> {
    let handle = |name: &str| {
        let facts = view.claims.values().find(|facts| facts.name == name);
        facts.and_then(|facts| facts.csi_handle.clone()).unwrap_or_default()
    };
    let answer = pass.learned.volume_ids.take();
    let can_ask = class_to_ask(pass).cloned();
    let working = pass.is_working();
    let mut specs = std::collections::BTreeMap::new();
    let drain = pass.status.drain.as_mut()?;
    for volume in drain.volumes.iter_mut().filter(|volume| volume.id.is_none()) {
        let facts = view.claims.values().find(|facts| facts.name == volume.name);
        match (&answer, facts) {
            (Some(ids), _) if ids.is_empty() => volume.id = Some(handle(&volume.name)),
            (Some(ids), _) if ids.contains_key(&volume.name) => {
                let said = ids.get(&volume.name).filter(|id| !id.is_empty()).cloned();
                volume.id = Some(said.unwrap_or_else(|| handle(&volume.name)));
            }
            (_, Some(facts)) if can_ask.is_some() && !facts.spec_json.is_empty() => {
                specs.insert(facts.name.clone(), facts.spec_json.clone());
            }
            _ => volume.id = Some(handle(&volume.name)),
        }
    }
    if specs.is_empty() {
        return None;
    }
    let count = specs.len();
    if let (false, Some(class)) = (working, &can_ask) {
        pass.ask_volume_ids(class, specs);
    }
    let message = format!("asking the driver for the ids of {count} volumes");
    Some(EvictionWait { reason: WaitReason::DriverWorking, message, until: None })
}

/// The class whose driver can be asked now.
fn class_to_ask<'a>(pass: &Pass<'a>) -> Option<&'a ClassFacts> {
    let snap: &'a crate::snapshot::Snapshot = pass.snap;
    let (class, driver) = preconditions::check(snap).ok()?;
    driver.has(OperationKind::GetVolumeIds).then_some(class)
}

/// Records which volumes no pod uses any more, and which are detached.
fn update_volumes(pass: &mut Pass<'_>, view: &VolumesView) {
    let now = pass.now();
    let snap = pass.snap;
    let Observed::Known(pods) = &snap.pods else { return };
    let used = |claim: &String| pods.iter().any(|pod| !pod.finished && pod.claims.contains(claim));
    let Some(drain) = &mut pass.status.drain else { return };
    for volume in &mut drain.volumes {
        let attached = is_attached(volume, view, &snap.attached_volumes);
        volume.attached |= attached;
        if used(&volume.claim) {
            (volume.released_at, volume.detached_at) = (None, None);
            continue;
        }
        volume.released_at.get_or_insert_with(|| now.clone());
        if attached {
            volume.detached_at = None;
        } else {
            volume.detached_at.get_or_insert_with(|| now.clone());
        }
    }
}

/// Whether a volume is attached to the Node, by its VolumeAttachment or by what the Node says.
pub(crate) fn is_attached(
    volume: &DrainVolume,
    view: &VolumesView,
    attached: &Observed<Vec<String>>,
) -> bool {
    let by_attachment =
        view.attachments.iter().any(|one| one.volume.as_deref() == Some(volume.name.as_str()));
    let id = volume.id.as_deref().unwrap_or_default();
    by_attachment || attached.known().is_some_and(|all| all.iter().any(|one| is_volume(one, id)))
}

/// Volumes in transit of higher-priority pods, for which pods of this priority wait.
fn pending(pass: &Pass<'_>, view: &VolumesView, priority: i32) -> Option<EvictionWait> {
    let (snap, drain) = (pass.snap, pass.status.drain.as_ref()?);
    let (mut attached, mut moving, mut until) = (Vec::new(), Vec::new(), None);
    for volume in drain.volumes.iter().filter(|volume| volume.priority > priority) {
        let (since, limit, list) = match (&volume.released_at, &volume.detached_at) {
            (Some(released), None) => (released, snap.settings.detach_timeout, &mut attached),
            (Some(_), Some(detached)) if volume.attached && view.moving.contains(&volume.name) => {
                (detached, snap.settings.reattach_timeout, &mut moving)
            }
            _ => continue,
        };
        let end = after(since.0, limit);
        if snap.now < end {
            list.push(volume.name.as_str());
            until = Some(until.map_or(end, |other: Timestamp| other.min(end)));
        }
    }
    let (reason, names, what) = match (attached.is_empty(), moving.is_empty()) {
        (false, _) => (WaitReason::VolumesAttached, attached, "still attached"),
        (true, false) => (WaitReason::VolumesMoving, moving, "not attached to their new nodes yet"),
        (true, true) => return None,
    };
    let message = format!("volumes {what}: {}", names.join(", "));
    Some(EvictionWait { reason, message, until })
}
