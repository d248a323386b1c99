//! Half of the Machines are lost, as in the outage of a zone: a single Machine is replaced, the others wait
//! ([`crate::replacement`]), and the deployment says so.

use ostler_api::machine_deployment::MachineDeploymentConditionType as Type;

use super::conditions::{self, find, reason};
use super::pass::Pass;
use crate::plan::EventReason;
use crate::replacement::Members;

impl Pass<'_> {
    /// Shows a mass failure in a condition for its duration, with an event at its begin and one at its end.
    pub(super) fn show_mass_failure(&mut self) {
        let wanted = usize::try_from(self.snapshot.deployment.spec.replicas()).unwrap_or_default();
        let machines = self.all_machines().map(|view| view.machine.as_ref());
        let members = Members::of(machines, wanted);
        let shown = find(&self.status.conditions, &Type::MassFailure).is_some();
        let Members { unhealthy, living, .. } = members;
        match (shown, members.is_mass_failure()) {
            (false, true) => {
                let note = format!(
                    "{unhealthy} of {living} machines are unhealthy: one is replaced, and the others wait until its \
                     successor runs"
                );
                let what = (Type::MassFailure, "True", reason::HALF_UNHEALTHY);
                conditions::set(&mut self.status.conditions, what, note.clone(), self.snapshot.now);
                self.warn(EventReason::MassFailure, note);
            }
            (true, false) => {
                conditions::remove(&mut self.status.conditions, &Type::MassFailure);
                let note = format!("{unhealthy} of {living} machines are unhealthy");
                self.say(EventReason::MassFailureEnded, note);
            }
            (false, false) | (true, true) => {}
        }
    }
}
