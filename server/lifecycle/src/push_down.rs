//! Template changes without new Machines: Node template, timeouts, the kind of the class. Sets copy the fields from
//! their deployment, Machines from their set.

use ostler_api::machine::MachineSpec;

macro_rules! taken_over {
    ($($($field:ident).+),+ $(,)?) => {
        /// Makes `to` take it over from `from`.
        pub(crate) fn push_down(from: &MachineSpec, to: &mut MachineSpec) {
            $(to.$($field).+.clone_from(&from.$($field).+);)+
        }

        /// Whether `to` has all values already. A set asks for each of its Machines in each pass.
        pub(crate) fn has_all(from: &MachineSpec, to: &MachineSpec) -> bool {
            $(to.$($field).+ == from.$($field).+)&&+
        }
    };
}

taken_over!(
    class.kind,
    node_template,
    drain_timeout,
    health_timeout,
    creation_timeout,
    in_place_update_timeout,
    machine_preserve_timeout,
    disable_health_timeout,
    max_evict_retries,
    node_conditions,
);
