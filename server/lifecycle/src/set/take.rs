//! The reserve Machines that a set takes before making any.

use std::sync::Arc;

use ostler_api::{
    Machine,
    machine::MachinePhase,
    names::annotation::{DELETE_MACHINE, MARKED_FOR_DELETION, RESERVE_TEMPLATE},
    names::label::ZONE,
};

use super::Snapshot;
use crate::{owner::is_in_reserve, template_identity::digest};

/// A Machine in reserve.
#[derive(Debug, Clone, PartialEq)]
pub struct Spare {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// The zone of its Node.
    pub zone: Option<String>,
}

/// Whether a set may take it: it runs, and is to stay.
pub fn is_ready(machine: &Machine) -> bool {
    let runs = matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available);
    let goes = [DELETE_MACHINE, MARKED_FOR_DELETION];
    runs && is_in_reserve(&machine.metadata)
        && !machine.is_deleting()
        && machine.unhealthy_mark().is_none()
        && goes.iter().all(|mark| machine.annotation(mark).is_none())
}

/// At most `most`: in the zones of leaving Machines, or of the template, then the oldest. A Machine that may already be
/// the set's, since there was no answer, comes first: no other Machine is taken in its place.
pub(super) fn choose(snapshot: &Snapshot, most: usize) -> Vec<Arc<Machine>> {
    if most == 0 || snapshot.spares.is_empty() {
        return Vec::new();
    }
    let template = &snapshot.set.spec.template;
    let made_from = digest(template);
    let fits = |spare: &&Spare| {
        let same = spare.machine.annotation(RESERVE_TEMPLATE) == Some(&made_from);
        same && is_ready(&spare.machine)
    };
    let mut rest: Vec<_> = snapshot.spares.iter().filter(fits).collect();
    rest.sort_by_key(|spare| {
        let meta = &spare.machine.metadata;
        let asked = snapshot.taking.iter().any(|name| name == spare.machine.name());
        (!asked, meta.creation_timestamp.as_ref().map(|it| it.0), spare.machine.name())
    });
    let asked = |spare: &&Spare| snapshot.taking.iter().any(|name| name == spare.machine.name());
    let (mut chosen, mut rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(asked);
    let labels = template.spec.node_template.as_ref().and_then(|it| it.metadata.as_ref());
    let own = labels.and_then(|it| it.labels.as_ref()?.get(ZONE));
    let own = own.into_iter().cycle().take(rest.len());
    let wanted: Vec<_> = snapshot.zones.iter().chain(own).collect();
    for zone in wanted {
        if let Some(at) = rest.iter().position(|spare| spare.zone.as_ref() == Some(zone)) {
            chosen.push(rest.remove(at));
        }
    }
    chosen.into_iter().chain(rest).take(most).map(|spare| Arc::clone(&spare.machine)).collect()
}
