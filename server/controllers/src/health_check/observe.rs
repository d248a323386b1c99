//! The snapshot of a pass over a check: caches only.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::{Machine, MachineHealthCheck};
use ostler_lifecycle::health_check::{CheckTarget, Snapshot, selects};

use super::HealthChecks;
use crate::machine::compared_node_view;
use crate::stores::{MachineIndex, Stores};
use crate::watch::ObjectName;

impl HealthChecks {
    pub(super) fn gather(&self, name: &ObjectName) -> Option<Snapshot> {
        let check = self.tools.stores.checks.get(name);
        if check.is_none() && !self.tools.stores.checks.is_synced() {
            // The check may only not be listed yet.
            return None;
        }
        let now = self.tools.now();
        let mut targets =
            check.as_ref().map(|it| selected(&self.tools.stores, it)).unwrap_or_default();
        targets.sort_by(|one, other| one.name().cmp(other.name()));
        let mut left =
            self.tools.stores.machines.find(MachineIndex::HealthCheck, &name.to_string());
        left.retain(|machine| check.as_ref().is_none_or(|check| !selects(check, machine)));
        if check.is_none() && left.is_empty() {
            return None;
        }
        let targets = targets.into_iter().map(|machine| self.target(machine, now)).collect();
        Some(Snapshot { now, name: name.name.clone(), check, targets, left })
    }

    fn target(&self, machine: Arc<Machine>, now: Timestamp) -> CheckTarget {
        let cluster = self.tools.stores.targets.of(&machine);
        let mut ids = self.tools.stores.id_comparison(&machine);
        CheckTarget {
            node: compared_node_view(&machine, &cluster, &self.tools.stores, &mut ids),
            ids: ids.by(),
            cluster: cluster.view(),
            api: self.tools.stores.targets.api_view(&self.api_health, &machine, now),
            machine,
        }
    }
}

/// The Machines selected by a check, all in its namespace.
fn selected(stores: &Stores, check: &MachineHealthCheck) -> Vec<Arc<Machine>> {
    let namespace = check.namespace();
    let mut found = stores.machines.find(MachineIndex::Namespace, namespace);
    found.retain(|machine| selects(check, machine));
    found
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_finds_the_machines_that_it_selects_among_those_of_its_namespace() {
        let stores = Stores::default();
        for (namespace, name, app) in
            [("a", "one", "web"), ("a", "two", "db"), ("b", "three", "web")]
        {
            let machine = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
                "spec": { "class": { "kind": "MachineClass", "name": "c" } }
            });
            stores.machines.apply(Event::Apply(serde_json::from_value(machine).unwrap()));
        }
        let check = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": "c", "namespace": "a" },
            "spec": { "selector": { "matchLabels": { "app": "web" } } }
        }))
        .unwrap();
        let found = selected(&stores, &check);
        assert_eq!(found.iter().map(|it| it.name()).collect::<Vec<_>>(), ["one"]);
    }
}
