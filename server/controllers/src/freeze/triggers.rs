//! Which freezes a change concerns.

use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::set::controller;

use super::FreezeKey;
use crate::fanout::Fanout;
use crate::queue::Priority;
use crate::stores::{DeploymentIndex, SetIndex};
use crate::watch::{Change, ObjectName};

impl Fanout {
    /// A Machine came, went, or has another controller or other labels: its set has another number of them.
    pub(crate) fn freeze_by_machine(&self, change: &Change<Machine>, priority: Priority) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if let (Some(old), Some(new)) = (old, new)
            && old.metadata.labels == new.metadata.labels
            && old.metadata.owner_references == new.metadata.owner_references
        {
            return;
        }
        for machine in [old, new].into_iter().flatten() {
            let Some(owner) = controller(&machine.metadata) else { continue };
            for set in self.stores.sets.find_names(SetIndex::Uid, &owner.uid) {
                self.queues.freezes.add(FreezeKey::Set(set), priority);
            }
        }
    }

    /// A set changed: it may have other replicas now, and its deployment shows whether it is frozen.
    pub(crate) fn freeze_by_set(&self, change: &Change<MachineSet>, priority: Priority) {
        let Some(set) = change.latest() else { return };
        if let Some(owner) = controller(&set.metadata) {
            for owner in self.stores.deployments.find_names(DeploymentIndex::Uid, &owner.uid) {
                self.queues.freezes.add(FreezeKey::Deployment(owner), priority);
            }
        }
        self.queues.freezes.add(FreezeKey::Set(ObjectName::of(set.as_ref())), priority);
    }

    /// A deployment changed: its sets may have fewer or more Machines now.
    pub(crate) fn freeze_by_deployment(
        &self,
        change: &Change<MachineDeployment>,
        priority: Priority,
    ) {
        let Some(deployment) = &change.new else { return };
        for set in self.stores.sets.find_names(SetIndex::Controller, deployment.uid()) {
            self.queues.freezes.add(FreezeKey::Set(set), priority);
        }
        let name = ObjectName::of(deployment.as_ref());
        self.queues.freezes.add(FreezeKey::Deployment(name), priority);
    }
}
