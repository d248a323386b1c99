//! A deployment that does not say how many Machines there are to be.

use std::sync::Arc;

use ostler_api::MachineSet;
use ostler_api::names::annotation::DESIRED_REPLICAS;

use super::pass::Pass;
use super::snapshot::SetView;
use crate::plan::EventReason;
use crate::replicas;

impl Pass<'_> {
    /// Fills the number in, and says so; what follows from it is for the next pass.
    pub(super) fn fill_replicas(&mut self) {
        let there = self.all_machines().filter(|view| !view.machine.is_deleting()).count();
        let seen = &self.snapshot.deployment;
        let filled = replicas::fill(&seen.metadata, scaled_to(&self.snapshot.sets), there);
        self.deployment.spec.replicas = Some(filled.replicas);
        if filled.warning {
            self.warn(EventReason::ReplicasAbsent, filled.note);
        } else {
            self.say(EventReason::ReplicasAbsent, filled.note);
        }
    }
}

/// For how many replicas of the deployment its sets were scaled last: with a surge, they want more themselves. For a
/// set of another controller without this note, `spec.replicas` counts.
fn scaled_to(sets: &[SetView]) -> i32 {
    let active = || sets.iter().map(|view| &view.set).filter(|set| set.spec.replicas() > 0);
    let wanted = active().map(|set| set.spec.replicas()).fold(0, i32::saturating_add);
    let mark = |set: &Arc<MachineSet>| set.annotation(DESIRED_REPLICAS)?.parse().ok();
    active().filter_map(mark).max().unwrap_or(wanted)
}
