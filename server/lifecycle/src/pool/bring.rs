//! Chooses the instances that the driver brings to the current model: running instances able to take the model, and
//! instances with drained Nodes.

use ostler_api::{
    ProviderId,
    machine::{InstanceState, MachinePhase},
};

use super::{Facts, in_place, matching::Member, way::Way};

/// An instance that is to get the current model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bring {
    /// The instance.
    pub id: ProviderId,
    /// Whether its Node is drained: it may be restarted or made anew.
    pub drained: bool,
}

/// All of them, in the order in which the driver is asked. Instances that may have a part of a model come first.
pub(super) fn wanted(facts: &Facts<'_>) -> Vec<Bring> {
    let pool = &facts.snap.pool;
    let current = facts.reading.is_some_and(|it| it.model_hash == facts.model);
    if pool.is_deleting() || !current {
        return Vec::new();
    }
    let one = |member: &Member<'_>| {
        let (machine, instance) = (member.machine, member.instance?);
        let finished = !facts.standing.hot.unfinished.contains(&instance.provider_id);
        if finished && instance.model_hash == facts.model {
            return None;
        }
        let busy = matches!(
            instance.state,
            InstanceState::Creating | InstanceState::Updating | InstanceState::Deleting
        );
        if facts.is_deleting(machine) || machine.is_paused() || busy {
            return None;
        }
        let hot = !pool.is_paused() && machine.phase() != MachinePhase::Failed;
        let drained = match facts.way(*member) {
            Way::Hot if hot => false,
            // A Machine whose update is not asked for any more loses the mark in this very pass, and its Node takes
            // pods again.
            Way::InPlace if in_place::is_emptied(machine) && in_place::is_asked_for(machine) => {
                true
            }
            Way::Current | Way::Hot | Way::InPlace | Way::Replace | Way::Stays => return None,
        };
        let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let id = instance.provider_id.clone();
        Some((finished, !drained, created, machine.name().to_owned(), Bring { id, drained }))
    };
    let mut all: Vec<_> = facts.matched.members.iter().filter_map(one).collect();
    all.sort_by(|one, other| {
        (one.0, one.1, one.2, &one.3).cmp(&(other.0, other.1, other.2, &other.3))
    });
    all.into_iter().map(|(.., bring)| bring).collect()
}
