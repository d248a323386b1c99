//! What changes mean for MachineHealthChecks.

use std::time::Duration;

use ostler_api::{Machine, MachineHealthCheck};
use ostler_lifecycle::health_check::selects;

use super::pools::is_same;
use super::{Fanout, priority};
use crate::queue::Priority;
use crate::stores::CheckIndex;
use crate::watch::{By, Change, ObjectName};

/// For how long a check of many Machines gathers changes of them: a pass is over all of them.
const GATHERED: Duration = Duration::from_secs(1);
/// With more Machines than this, they are many.
const LARGE: i32 = 100;

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
            if check.status.as_ref().is_some_and(|status| status.expected_machines > LARGE) {
                self.queues.checks.add_after(&name, GATHERED);
            } else {
                self.queues.checks.add(name, priority);
            }
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
