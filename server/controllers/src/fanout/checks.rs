//! What changes mean for MachineHealthChecks.

use ostler_api::{Machine, MachineHealthCheck};
use ostler_lifecycle::health_check::selects;

use super::pools::is_same;
use super::{Fanout, add_gathered, priority};
use crate::queue::Priority;
use crate::stores::CheckIndex;
use crate::watch::{By, Change, ObjectName};

impl Fanout {
    /// A machine changed: reconciles the checks that select it or did, and the one whose mark it has.
    pub(super) fn checks_of(&self, change: &Change<Machine>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same(old, new)
        {
            return;
        }
        for machine in [&change.old, &change.new].into_iter().flatten() {
            self.check_machine(machine, priority(change));
        }
    }

    /// Reconciles the checks of a machine.
    pub(super) fn check_machine(&self, machine: &Machine, priority: Priority) {
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(mark) = machine.unhealthy_mark() {
            self.queues.checks.add(ObjectName::new(namespace, mark.check), priority);
        }
        for check in self.stores.checks.find(CheckIndex::Namespace, namespace) {
            if !selects(&check, machine) {
                continue;
            }
            let name = ObjectName::of(check.as_ref());
            let machines = check.status.as_ref().map_or(0, |status| status.expected_machines);
            let machines = usize::try_from(machines).unwrap_or(0);
            add_gathered(&self.queues.checks, name, machines, priority);
        }
    }

    /// A check changed.
    pub(crate) fn check(&self, change: &Change<MachineHealthCheck>) {
        let Some(check) = change.latest() else { return };
        let name = ObjectName::of(check.as_ref());
        if change.is_news_to(By::HealthCheck, &name) {
            self.queues.checks.add(name, priority(change));
        }
    }

    /// The API servers stopped answering, or answer again.
    pub(super) fn all_checks(&self) {
        for name in self.stores.checks.names() {
            self.queues.checks.add(name, Priority::Background);
        }
    }
}
