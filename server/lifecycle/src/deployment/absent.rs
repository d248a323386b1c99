//! A deployment that does not say how many Machines there are to be.

use super::pass::Pass;
use super::plan::Reason;
use super::snapshot::SetView;
use crate::replicas;

impl Pass<'_> {
    /// Fills the number in, and says so; what follows from it is for the next pass.
    pub(super) fn fill_replicas(&mut self) {
        let there = self.all_machines().filter(|view| !view.machine.is_deleting()).count();
        let seen = &self.snapshot.deployment;
        let filled = replicas::fill(&seen.metadata, scaled_to(&self.snapshot.sets), there);
        self.deployment.spec.replicas = Some(filled.replicas);
        if filled.warning {
            self.warn(Reason::ReplicasAbsent, filled.note);
        } else {
            self.say(Reason::ReplicasAbsent, filled.note);
        }
    }
}

/// For how many replicas of the deployment its sets were scaled last: with a surge, they want more themselves. Of a set that
/// another controller made and that says nothing, what it wants counts.
fn scaled_to(sets: &[SetView]) -> i32 {
    let active = || sets.iter().map(|view| view.counts(&Default::default(), Default::default()));
    let active = || active().filter(|counts| counts.is_active());
    let wanted = active().map(|counts| counts.wanted).fold(0, i32::saturating_add);
    active().filter_map(|counts| counts.desired_mark).max().unwrap_or(wanted)
}
