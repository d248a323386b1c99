//! Builds the snapshot from the caches.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::deployment::snapshot::{MachineView, SetView, Snapshot};
use ostler_lifecycle::selector;
use ostler_lifecycle::set::controller;
use ostler_lifecycle::snapshot::NodeView;

use super::{Deployments, namespace_of};
use crate::machine::node_view;
use crate::reconcile::PassError;
use crate::stores::{DeploymentIndex, MachineIndex, SetIndex};
use crate::watch::ObjectName;

/// When to look again while a set cannot be read.
const UNREADABLE: Duration = Duration::from_mins(1);

impl Deployments {
    pub(super) fn snapshot(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(deployment) = self.stores.deployments.get(name) else { return Ok(None) };
        // It may be the set of the current template, of which there must not be two.
        if self.stores.sets.has_unreadable() {
            return Err(PassError::NotYet(UNREADABLE));
        }
        let sets = self.stores.sets.find(SetIndex::Controller, deployment.uid());
        Ok(Some(Snapshot {
            sets: sets.into_iter().map(|set| self.set_view(set)).collect(),
            orphans: self.orphans(&deployment),
            others: self.stores.deployments.find(DeploymentIndex::Namespace, &name.namespace),
            guard_nodes: self.settings.fleet.keep_autoscaler_away,
            now: (self.clock.0)(),
            deployment,
        }))
    }

    fn set_view(&self, set: Arc<MachineSet>) -> SetView {
        let machines = self.stores.machines.find(MachineIndex::Controller, set.uid());
        SetView { machines: machines.into_iter().map(|it| self.machine_view(it)).collect(), set }
    }

    fn machine_view(&self, machine: Arc<Machine>) -> MachineView {
        let node = match node_view(&machine, &self.stores.targets.of(&machine)) {
            NodeView::Known(node) => Some(node),
            NodeView::Absent | NodeView::Unknown | NodeView::Ambiguous(_) => None,
        };
        MachineView { machine, node }
    }

    fn orphans(&self, deployment: &MachineDeployment) -> Vec<Arc<MachineSet>> {
        let Some(selector) = &deployment.spec.selector else { return Vec::new() };
        let mut sets = self.stores.sets.find(SetIndex::Namespace, namespace_of(deployment));
        sets.retain(|set| {
            controller(&set.metadata).is_none()
                && selector::matches(selector, set.metadata.labels.as_ref())
        });
        sets
    }
}
