//! The instances in an update in place now. The pool marks their Machines; each drains its Node, then the driver is
//! asked, and the marks go once the instance has the model. Until its Node is used again, a Machine counts as missing.

use std::cmp::Reverse;
use std::sync::Arc;

use ostler_api::{
    Machine,
    machine::{InstanceState, MachinePhase, MachineStep},
    names::annotation,
};
use serde_json::{Value, json};

use super::{
    Facts, Victim, budget,
    matching::{Member, is_ready},
    way::Way,
};

pub(super) const MARKS: [&str; 3] = [
    annotation::UPDATE_BEGUN,
    annotation::UPDATE_INSTANCE,
    annotation::CLUSTER_API_UPDATE_INSTANCE,
];

/// Whether a user or the pool asked for an update of this instance in place.
pub(super) fn is_asked_for(machine: &Machine) -> bool {
    let asks = [annotation::UPDATE_INSTANCE, annotation::CLUSTER_API_UPDATE_INSTANCE];
    asks.iter().any(|mark| machine.annotation(mark).is_some())
}

/// Whether the budget has a place for it.
pub fn is_begun(machine: &Machine) -> bool {
    machine.annotation(annotation::UPDATE_BEGUN).is_some()
}

/// Whether the Node is drained for the update: the driver may change the instance as it likes.
pub fn is_emptied(machine: &Machine) -> bool {
    let step = machine.status.as_ref().and_then(|status| status.step.as_ref());
    is_begun(machine) && !machine.is_deleting() && step == Some(&MachineStep::UpdateInstance)
}

/// Whether the Machine is missing because of the update: its Node takes no pods, or will take none soon.
pub(super) fn is_missing(machine: &Machine) -> bool {
    use MachinePhase::{InPlaceUpdateFailed, InPlaceUpdateSuccessful, InPlaceUpdating};
    is_begun(machine)
        || matches!(
            machine.phase(),
            InPlaceUpdating | InPlaceUpdateFailed | InPlaceUpdateSuccessful
        )
}

/// The marks that begin or end an update. `victims` go in the same pass.
pub(super) fn marks(facts: &Facts<'_>, victims: &[Victim]) -> Vec<(Arc<Machine>, Value)> {
    let pool = &facts.snap.pool;
    if pool.is_deleting() || facts.reading.is_none() {
        return Vec::new();
    }
    let mut all: Vec<_> = facts.live().filter_map(|member| end(facts, member)).collect();
    let marks = json!({
        annotation::UPDATE_INSTANCE: facts.model, annotation::UPDATE_BEGUN: facts.model
    });
    let begun = next(facts, victims).into_iter().map(|machine| patch(machine, &marks));
    all.extend(begun);
    all
}

/// It has the model, or the update is not wanted any more.
fn end(facts: &Facts<'_>, member: Member<'_>) -> Option<(Arc<Machine>, Value)> {
    let machine = member.machine;
    let (asked, begun) = (is_asked_for(machine), is_begun(machine));
    if !asked && !begun {
        return None;
    }
    let works = member
        .instance
        .is_some_and(|it| matches!(it.state, InstanceState::Succeeded | InstanceState::Unknown));
    // The Machine's instance status is written first: without it, the Machine could not tell success from a cancelled
    // wish.
    let told = machine.status.as_ref().and_then(|status| status.instance.as_ref());
    let told = told.is_some_and(|it| it.latest_model_applied);
    let done = works && told && facts.way(member) == Way::Current;
    let not_wanted = begun && !asked && !facts.standing.busy;
    let gone = match (done, not_wanted) {
        (true, _) => &MARKS[..],
        (false, true) => &MARKS[..1],
        (false, false) => return None,
    };
    let has = gone.iter().filter(|mark| machine.annotation(mark).is_some());
    let none: serde_json::Map<_, _> = has.map(|mark| ((*mark).to_owned(), Value::Null)).collect();
    Some(patch(machine, &none.into()))
}

fn patch(machine: &Arc<Machine>, annotations: &Value) -> (Arc<Machine>, Value) {
    let patch = json!({ "metadata": { "annotations": annotations } });
    (Arc::clone(machine), patch)
}

/// The Machines whose turn it is: as many as may be missing, and only Machines that are ready now. The order is total.
fn next<'a>(facts: &'a Facts<'_>, victims: &[Victim]) -> Vec<&'a Arc<Machine>> {
    let pool = &facts.snap.pool;
    let current = facts.reading.is_some_and(|it| it.model_hash == facts.model);
    if pool.is_paused() || !current || !facts.broken.is_empty() {
        return Vec::new();
    }
    let limit = budget::in_place(pool).unwrap_or(0);
    let goes = |machine: &Machine| victims.iter().any(|it| it.machine.uid() == machine.uid());
    let missing = facts.live().filter(|it| is_missing(it.machine)).count();
    let mut ready: Vec<_> = facts
        .live()
        .filter(|Member { machine, .. }| {
            is_ready(machine) && !is_missing(machine) && !goes(machine)
        })
        .collect();
    // Victims of this pass were chosen beside as many ready Machines as their own budget asks for.
    let chosen = victims.iter().any(|it| it.cause.is_choice());
    let fewer = if chosen { limit.min(facts.budget.unavailable) } else { limit };
    let least = usize::try_from(pool.replicas()).unwrap_or(0).saturating_sub(fewer);
    let room = ready.len().saturating_sub(least).min(limit.saturating_sub(missing));
    if room == 0 {
        return Vec::new();
    }
    let all = budget::updates_in_place(pool);
    ready.retain(|member| {
        let machine = member.machine;
        (all || is_asked_for(machine)) && facts.way(*member) == Way::InPlace && !machine.is_paused()
    });
    ready.sort_by_cached_key(|Member { machine, .. }| {
        let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        // A user's request comes first.
        (Reverse(is_asked_for(machine)), created, machine.name().to_owned())
    });
    ready.into_iter().take(room).map(|member| member.machine).collect()
}
