//! Writes the results of a pass's evictions into the progress of the drain.

use std::collections::BTreeMap;

use ostler_api::machine::{MachineStatus, MachineStep, WaitReason};

use super::{
    leaving,
    progress::{self, Asked},
};
use crate::{
    plan::{Action, Event, EventReason, Performed},
    pod::PodView,
    snapshot::Snapshot,
};

/// Counts refused and failed evictions, and names them in the wait. Returns an event if from now on
/// a person may have to end the wait before its deadline.
pub(crate) fn record_evictions<'a>(
    snapshot: &Snapshot,
    results: impl Iterator<Item = (&'a Action, &'a Performed)>,
    status: &mut MachineStatus,
) -> Option<Event> {
    let drains = status.step == Some(MachineStep::DrainNode) && snapshot.pods.known().is_some();
    let drain = status.drain.as_mut().filter(|drain| drains && !drain.finished)?;
    let by_uid: BTreeMap<&str, Asked<'_>> = results
        .filter_map(|(action, result)| {
            let vanish = matches!(action, Action::DeletePod(_));
            let asked = if vanish { Asked::ToVanish(result) } else { Asked::ToLeave(result) };
            Some((action.pod()?.uid.as_str(), asked))
        })
        .collect();
    let asked = |pod: &PodView| by_uid.get(pod.uid.as_str()).copied();
    let failure = progress::tally(drain, &leaving(snapshot), asked, snapshot.now);
    let (reason, text) = (progress::reason(Some(drain)), progress::describe(drain, failure));
    let waiting = status.waiting_for.as_mut().filter(|wait| is_for_pods(&wait.reason))?;
    let old = snapshot.machine.status.as_ref().and_then(|status| status.waiting_for.as_ref());
    let before = old.filter(|before| before.reason == reason);
    let begins = before.is_none() && progress::needs_person(&reason);
    if waiting.reason != reason {
        waiting.since = before.and_then(|one| one.since.clone()).or_else(|| waiting.since.take());
        waiting.reason = reason.clone();
    }
    waiting.message = Some(text.clone());
    let message = format!("{reason}: {text}");
    let event = Event::warning(EventReason::DrainBlocked, message);
    begins.then_some(Event { on_node: true, ..event })
}

/// Whether a wait is for pods, so that what came of the requests may be another reason for it.
const fn is_for_pods(reason: &WaitReason) -> bool {
    matches!(
        reason,
        WaitReason::PodsTerminating
            | WaitReason::PodDisruptionBudget
            | WaitReason::MisconfiguredBudget
            | WaitReason::SeveralBudgets
            | WaitReason::EvictionFailing
    )
}
