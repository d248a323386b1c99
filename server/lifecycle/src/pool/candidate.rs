//! The facts about a Machine for the choice of victims.

use std::collections::BTreeSet;

use ostler_api::{
    Machine,
    machine::{InstanceState, MachinePhase, MachineStep},
    names::annotation,
};

use super::{
    Facts, Snapshot, in_place, is_begun,
    matching::{Matched, Member, is_ready},
    victims::Candidate,
};
use crate::{autoscaler::chosen::is_chosen, hint, streak::Streak};

pub(super) fn of<'a>(facts: &Facts<'_>, member: Member<'a>) -> Candidate<'a> {
    let machine = member.machine;
    let current = machine.status.as_ref().and_then(|status| status.current_status.as_ref());
    let kept = current.and_then(|current| current.preserve_expiry_time.as_ref());
    let marks = [annotation::DELETE_MACHINE, annotation::CLUSTER_API_DELETE_MACHINE];
    Candidate {
        name: machine.name(),
        uid: machine.uid(),
        created: machine.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: facts.is_leaving(member),
        stuck: machine.instance_id().is_some_and(|id| facts.standing.is_refused(id))
            || is_held(machine),
        failed: is_failed(member) && !facts.streak.holds(machine),
        ready: is_ready(machine) && !is_begun(machine),
        ends: hint::is_to_be_replaced(machine, facts.snap.now),
        outdated: facts.is_outdated(member),
        annotated: marks.iter().any(|mark| machine.annotation(mark).is_some())
            || machine.annotation(annotation::PRIORITY) == Some("1")
            || facts
                .snap
                .pool
                .annotation(annotation::TRIGGER_DELETION)
                .is_some_and(|list| is_chosen(machine, list)),
        preserved: kept.is_some_and(|until| until.0 > facts.snap.now),
    }
}

/// The consecutive failures of a pool's Machines, and when Failed Machines are replaced.
pub(super) fn streak(snap: &Snapshot, matched: &Matched<'_>) -> Streak {
    let old = snap.pool.status.as_ref().and_then(|it| it.replacement_retry.as_ref());
    let failed = matched.members.iter().filter(|it| is_failed(**it)).map(|it| it.machine.uid());
    let failed: BTreeSet<&str> = failed.collect();
    let machines = snap.machines.iter().map(AsRef::as_ref);
    Streak::of(old, machines, |machine| failed.contains(machine.uid()), snap.now)
}

fn is_failed(member: Member<'_>) -> bool {
    member.machine.phase() == MachinePhase::Failed || is_broken(member)
}

/// A user pauses it, or a hook holds its deletion, for any time.
fn is_held(machine: &Machine) -> bool {
    let step = machine.status.as_ref().and_then(|status| status.step.as_ref());
    let waits = matches!(step, Some(MachineStep::PreDrainHook | MachineStep::PreTerminateHook));
    machine.is_deleting() && (machine.is_paused() || waits)
}

/// The infrastructure gave the instance up. A failed change is no reason to drain a Node that works or that waits for
/// its update.
fn is_broken(Member { machine, instance }: Member<'_>) -> bool {
    instance.is_some_and(|it| it.state == InstanceState::Failed)
        && !is_ready(machine)
        && !in_place::is_missing(machine)
}
