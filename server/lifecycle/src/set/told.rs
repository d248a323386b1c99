//! Events of a set, each once.

use ostler_api::MachineSet;
use ostler_api::machine_set::{MachineSetConditionType as Type, MachineSetStatus};

use super::Decision;
use crate::plan::{Event, EventAction, EventReason};

/// Events about news in the status.
pub(super) fn events(set: &MachineSet, decision: &Decision, new: &MachineSetStatus) -> Vec<Event> {
    let mut events = Vec::new();
    if !decision.broken.is_empty() && !was_told(set) {
        let note = decision.broken.join("; ");
        events
            .push(Event::warning(EventReason::ValidationFailed, note).doing(EventAction::Validate));
    }
    if let Some(other) = &decision.overlap {
        let note = format!(
            "spec.selector overlaps with that of machine set {other}: each may adopt Machines that the other releases"
        );
        events.push(Event::warning(EventReason::SelectorOverlap, note));
    }
    events.extend(changed_template(set, decision));
    for reason in [
        EventReason::ForeignController,
        EventReason::MachineUnreadable,
        EventReason::AnnotationInvalid,
    ] {
        let before = set.status.as_ref().and_then(|old| message(old, reason));
        let now = message(new, reason).filter(|now| before != Some(now));
        events.extend(now.map(|note| Event::warning(reason, note.to_owned())));
    }
    let streak = decision.streak.message().filter(|_| decision.streak.is_new());
    events.extend(streak.map(|note| Event::warning(EventReason::ReplacementsFail, note)));
    events
}

/// The event that the template of the existing Machines has changed: the same template has a new generation.
fn changed_template(set: &MachineSet, decision: &Decision) -> Option<Event> {
    let old = set.status.as_ref()?.bootstrap_template.as_ref()?;
    let new = decision.template.as_ref()?;
    let changed = old.name == new.name && old.generation != new.generation;
    if !changed || decision.claimed.is_empty() {
        return None;
    }
    let note = format!(
        "template {} was changed in place: Machines made from now on get it so, and those that are there keep what they \
         have; to replace them, name another template",
        new.name
    );
    Some(Event::normal(EventReason::TemplateChangedInPlace, note))
}

/// The message of the condition with this reason.
fn message(status: &MachineSetStatus, reason: EventReason) -> Option<&str> {
    let mut all = status.conditions.iter();
    all.find(|it| it.reason.as_deref() == Some(reason.name()))?.message.as_deref()
}

/// Whether the status already refuses this generation: one event per generation.
fn was_told(set: &MachineSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation == set.metadata.generation
            && status.conditions.iter().any(|condition| condition.type_ == Type::Valid)
    })
}
