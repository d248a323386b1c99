//! What needs no new Machines when a template changes: Node template, timeouts, the kind of the class. A set takes it
//! over from its deployment, and a Machine from its set.

use ostler_api::machine::MachineSpec;

/// Makes `to` take it over from `from`.
pub(crate) fn push_down(from: &MachineSpec, to: &mut MachineSpec) {
    to.class.kind.clone_from(&from.class.kind);
    to.node_template.clone_from(&from.node_template);
    to.drain_timeout.clone_from(&from.drain_timeout);
    to.health_timeout.clone_from(&from.health_timeout);
    to.creation_timeout.clone_from(&from.creation_timeout);
    to.in_place_update_timeout.clone_from(&from.in_place_update_timeout);
    to.machine_preserve_timeout.clone_from(&from.machine_preserve_timeout);
    to.disable_health_timeout = from.disable_health_timeout;
    to.max_evict_retries = from.max_evict_retries;
    to.node_conditions.clone_from(&from.node_conditions);
}
