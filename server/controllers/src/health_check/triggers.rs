//! Wakes health checks.

use k8s_openapi::api::core::v1::Node;
use ostler_api::{Machine, MachineHealthCheck};
use ostler_lifecycle::health_check::selects;
use ostler_lifecycle::unmanaged_nodes::is_not_managed;

use super::HealthChecks;
use crate::fleet::{Fleet, FleetKind as _};
use crate::queue::Priority;
use crate::stores::{CheckIndex, is_same_to_pool};
use crate::target::Target;
use crate::triggers::{Triggers, Woken, add_gathered};
use crate::watch::{Change, ObjectName};

impl Woken<Fleet<HealthChecks>> {
    /// The checks that select a machine, and the check of the machine's mark.
    fn add_checks_of(&self, machine: &Machine, priority: Priority) {
        let namespace = machine.namespace();
        if let Some(mark) = machine.unhealthy_mark() {
            self.queue.add(ObjectName::new(namespace, mark.check), priority);
        }
        for check in self.stores.checks.find(CheckIndex::Namespace, namespace) {
            if !selects(&check, machine) {
                continue;
            }
            let name = ObjectName::of(check.as_ref());
            let machines = check.status.as_ref().map_or(0, |status| status.expected_machines);
            let machines = usize::try_from(machines).unwrap_or(0);
            add_gathered(&self.queue, name, machines, priority);
        }
    }
}

impl Triggers for Woken<Fleet<HealthChecks>> {
    /// Checks that select or selected the Machine, and the check of its mark.
    fn machine(&self, change: &Change<Machine>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same_to_pool(old, new)
        {
            return;
        }
        for machine in [&change.old, &change.new].into_iter().flatten() {
            self.add_checks_of(machine, change.priority());
        }
    }

    fn node(&self, target: &Target, change: &Change<Node>) {
        for node in [&change.old, &change.new].into_iter().flatten() {
            if is_not_managed(node) {
                continue;
            }
            let machines = self.stores.machines_of(target, node);
            for machine in machines.iter().filter_map(|it| self.stores.machines.get(it)) {
                self.add_checks_of(&machine, change.priority());
            }
        }
    }

    fn check(&self, change: &Change<MachineHealthCheck>) {
        let Some(check) = change.latest() else { return };
        let name = ObjectName::of(check.as_ref());
        if change.is_news_to(HealthChecks::NAME, &name) {
            self.queue.add(name, change.priority());
        }
    }

    fn cluster(&self, _: &ObjectName) {
        self.everything();
    }

    fn health(&self, _: Option<&ObjectName>) {
        self.everything();
    }

    fn everything(&self) {
        self.add_all(self.stores.checks.names(), Priority::Background);
    }
}
