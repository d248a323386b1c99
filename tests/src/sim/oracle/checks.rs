//! The oracle's view of health checks.

use ostler_api::MachineHealthCheck;
use ostler_api::machine::{FailureReason, Machine};

use super::groups::is_gone;
use super::{Books, Change, Oracle};

impl Oracle {
    pub(super) fn check(&self, change: &Change) {
        let read = serde_json::from_value::<MachineHealthCheck>(change.object.clone());
        let Ok(check) = read else { return };
        let name = check.name().to_owned();
        let there = !is_gone(change, &check.metadata);
        self.lock().checks.check(&name, there.then_some(check));
    }

    /// A Machine was written that a check may be about.
    pub(super) fn checked(
        &self,
        books: &mut Books,
        before: Option<&Machine>,
        machine: &Machine,
        ours: bool,
    ) {
        let marked = |it: &Machine| it.unhealthy_mark().is_some();
        let before_it = before.filter(|_| ours);
        if marked(machine) && before_it.is_some_and(|it| !marked(it)) {
            self.trace.count("marked by a check".to_owned());
        }
        let reason = |it: &Machine| it.status.as_ref()?.failure_reason.clone();
        let fails = reason(machine) == Some(FailureReason::HealthCheck);
        if fails && before_it.is_some_and(|it| reason(it).is_none()) {
            self.trace.count("failed for a check".to_owned());
        }
        if let Some(wrong) = books.checks.machine(before, machine, ours, self.now()) {
            self.broken(wrong);
        }
    }
}
