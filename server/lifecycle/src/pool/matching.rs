//! Which Machine is which instance. An instance without a Machine gets one; a Machine whose instance two reads did not
//! name goes, and the group fills the gap.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_api::{Machine, ProviderId, machine::MachineStep, names::annotation::INSTANCE_GONE};

use super::group::{Instance, Reading};

/// So many reads in a row have to miss the instance of a Machine that lives.
const LOOKS: u32 = 2;

/// The Machines of a pool beside the instances of its group.
#[derive(Debug, Default)]
pub struct Matched<'a> {
    /// Both.
    pub pairs: Vec<(&'a Arc<Machine>, &'a Instance)>,
    /// Instances that are to get a Machine.
    pub new: Vec<&'a Instance>,
    /// Machines whose instance is gone, and that do not say so yet.
    pub gone: Vec<&'a Arc<Machine>>,
}

/// Compares Machines with a read of the group.
pub fn compare<'a>(machines: &'a [Arc<Machine>], reading: &'a Reading) -> Matched<'a> {
    let by_id: BTreeMap<_, _> =
        reading.instances.iter().map(|instance| (&instance.provider_id, instance)).collect();
    let held: BTreeMap<_, _> =
        machines.iter().filter_map(|machine| Some((machine.provider_id()?, machine))).collect();
    let instance = |machine: &Machine| machine.provider_id().and_then(|id| by_id.get(id).copied());
    let pairs = machines.iter().filter_map(|machine| Some((machine, instance(machine)?)));
    let new = reading.instances.iter().filter(|one| {
        !one.is_going() && !one.provider_id.is_empty() && !held.contains_key(&one.provider_id)
    });
    let gone = machines.iter().filter(|machine| {
        let looks = reading.absent.get(machine.uid()).copied().unwrap_or(0);
        let enough = if awaits_its_end(machine) { 1 } else { LOOKS };
        looks >= enough && instance(machine).is_none() && !is_told_gone(machine)
    });
    Matched { pairs: pairs.collect(), new: new.collect(), gone: gone.collect() }
}

/// Whether it says already that its instance is gone.
pub fn is_told_gone(machine: &Machine) -> bool {
    let id = machine.provider_id().map(ProviderId::as_str).unwrap_or_default();
    machine.annotation(INSTANCE_GONE) == Some(id)
}

/// Whether everything is done before its instance goes: its Node is drained, and no hook holds it.
pub fn awaits_its_end(machine: &Machine) -> bool {
    let step = machine.status.as_ref().and_then(|status| status.step.as_ref());
    machine.is_deleting() && step == Some(&MachineStep::DeleteInstance)
}
