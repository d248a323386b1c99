//! How long a set gathers changes of its Machines before a pass.

use std::time::Duration;

use ostler_api::MachineSet;

/// A pass looks at every Machine of a set, so a large one has fewer passes: this for each Machine.
const EACH: Duration = Duration::from_micros(100);
/// Shorter is not worth a timer.
const SHORTEST: Duration = Duration::from_millis(1);
/// However large a set is, a change waits no longer than this.
const LONGEST: Duration = Duration::from_millis(250);

/// For how long changes of its Machines are gathered; `None`: not at all, the set is small.
pub fn gathers(set: &MachineSet) -> Option<Duration> {
    let counted = set.status.as_ref().map_or(0, |status| status.replicas);
    let machines = u32::try_from(set.spec.replicas().max(counted)).unwrap_or(0);
    let time = EACH.saturating_mul(machines).min(LONGEST);
    (time >= SHORTEST).then_some(time)
}
