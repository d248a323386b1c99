//! Matches Machines with instances. An instance without a Machine gets one; a Machine whose instance two reads did not
//! name goes, and the group fills the gap.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_api::{
    Machine,
    machine::{InstanceState, MachinePhase},
};

use super::{
    Facts,
    ending::{has_drained, is_marked_gone},
    group::{Instance, Reading},
    known::SEEN_TWICE,
};

/// The largest size of a group that counts because the driver says it, and not the pool: of the largest pool that was measured.
const MOST_BELIEVED: usize = 10_000;

/// A Machine of a pool, and its instance, if the read names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) machine: &'a Arc<Machine>,
    pub(super) instance: Option<&'a Instance>,
}

impl Member<'_> {
    /// The infrastructure is not done with the instance yet.
    pub(super) fn is_being_made(&self) -> bool {
        self.instance.is_some_and(|it| it.state == InstanceState::Creating)
    }
}

/// The Machines of a pool beside the instances of its group.
#[derive(Debug, Default)]
pub(super) struct Matched<'a> {
    /// All Machines.
    pub(super) members: Vec<Member<'a>>,
    /// Instances that are to get a Machine.
    pub(super) new: Vec<&'a Instance>,
    /// Machines whose instance is gone, and that do not say so yet.
    pub(super) gone: Vec<&'a Arc<Machine>>,
}

/// Compares Machines with a read of the group.
pub(super) fn compare<'a>(
    machines: &'a [Arc<Machine>],
    reading: Option<&'a Reading>,
) -> Matched<'a> {
    let instances = || reading.into_iter().flat_map(|it| &it.instances);
    let mut by_id: BTreeMap<_, _> = instances().map(|it| (&it.provider_id, (it, false))).collect();
    let member = |machine: &'a Arc<Machine>| {
        let found = machine.instance_id().and_then(|id| by_id.get_mut(id));
        let instance = found.map(|(instance, held)| {
            *held = true;
            &**instance
        });
        Member { machine, instance }
    };
    // A pool may have 10,000: each is looked up once.
    let members: Vec<_> = machines.iter().map(member).collect();
    let is_new = |(one, held): &(&'a Instance, bool)| {
        !held && !one.is_going() && !one.provider_id.is_empty()
    };
    let gone = members.iter().filter(|member| {
        let looks = reading.and_then(|it| it.absent.get(member.machine.uid()));
        let enough = if has_drained(member.machine) { 1 } else { SEEN_TWICE };
        member.instance.is_none()
            && looks.is_some_and(|looks| *looks >= enough)
            && !is_marked_gone(member.machine)
    });
    let gone = gone.map(|member| member.machine).collect();
    let new = by_id.into_values().filter(is_new).map(|(one, _)| one).collect();
    Matched { members, new, gone }
}

impl<'a> Facts<'a> {
    /// The Machines whose deletion was not asked for.
    pub(super) fn live(&self) -> impl Iterator<Item = Member<'a>> {
        self.matched.members.iter().filter(|it| !self.is_deleting(it.machine)).copied()
    }

    /// Instances for which no Machine was made.
    pub(super) fn unmade(&self) -> impl Iterator<Item = &'a Instance> {
        let is_new = |it: &&Instance| !self.snap.created.contains(&it.provider_id);
        self.matched.new.iter().copied().filter(is_new)
    }

    /// How many instances without a Machine may get one. A driver may list 100,000: beyond what the pool wants, or its
    /// group is to have, there is a tenth more for what comes and goes, and 10 at least.
    pub(super) fn room(&self) -> usize {
        let desired = self.reading.map_or(0, |it| it.desired.min(MOST_BELIEVED));
        let most = usize::try_from(self.snap.pool.replicas()).unwrap_or(0).max(desired);
        let coming = self.matched.new.len() - self.unmade().count();
        (most + (most / 10).max(10)).saturating_sub(self.live().count() + coming)
    }
}

/// Whether its Node is Ready or, where Machines have no Nodes, its instance is as it is to be.
pub(super) fn is_ready(machine: &Machine) -> bool {
    let said = || machine.status.as_ref()?.instance.as_ref().map(|it| &it.provisioning_state);
    let phase = machine.phase();
    phase == MachinePhase::Running
        || phase == MachinePhase::Available
            && matches!(said(), Some(InstanceState::Succeeded | InstanceState::Unknown))
}
