//! What a pass over a check reads: caches only.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::Machine;
use ostler_lifecycle::health_check::{Snapshot, Target, selects};

use super::HealthChecks;
use crate::machine::node_view;
use crate::stores::MachineIndex;
use crate::watch::ObjectName;

impl HealthChecks {
    pub(super) fn gather(&self, name: &ObjectName) -> Option<Snapshot> {
        let check = self.stores.checks.get(name);
        if check.is_none() && !self.stores.checks.is_synced() {
            // It may only not be listed yet.
            return None;
        }
        let now = (self.clock.0)();
        let chosen = |machine: &Machine| {
            machine.metadata.namespace.as_deref() == Some(name.namespace.as_str())
                && check.as_ref().is_some_and(|check| selects(check, machine))
        };
        let mut targets: Vec<_> = match &check {
            Some(_) => self.stores.machines.all(),
            None => Vec::new(),
        };
        targets.retain(|machine| chosen(machine));
        targets.sort_by(|one, other| one.name().cmp(other.name()));
        let mut left = self.stores.machines.find(MachineIndex::HealthCheck, &name.to_string());
        left.retain(|machine| !chosen(machine));
        if check.is_none() && left.is_empty() {
            return None;
        }
        let targets = targets.into_iter().map(|machine| self.target(machine, now)).collect();
        Some(Snapshot { now, name: name.name.clone(), check, targets, left })
    }

    fn target(&self, machine: Arc<Machine>, now: Timestamp) -> Target {
        let cluster = self.stores.targets.of(&machine);
        Target {
            node: node_view(&machine, &cluster),
            cluster: cluster.view(),
            api: self.stores.targets.api_view(&self.api_health, &machine, now),
            machine,
        }
    }
}
