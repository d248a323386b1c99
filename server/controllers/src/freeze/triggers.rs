//! Wakes freezes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::machine_deployment::MachineDeploymentCondition;
use ostler_api::machine_set::MachineSetCondition;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::owner::controller;

use super::{FreezeKey, Freezes};
use crate::freeze::OF_DEPLOYMENT;
use crate::freeze::OF_SET;
use crate::stores::{DeploymentIndex, SetIndex};
use crate::triggers::{Triggers, Woken, add_of_set};
use crate::watch::{Change, ObjectName};

impl Triggers for Woken<Freezes> {
    /// A Machine came, went, or has another controller or other labels: its set has another number of them.
    fn machine(&self, change: &Change<Machine>) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if let (Some(old), Some(new)) = (old, new)
            && old.metadata.labels == new.metadata.labels
            && old.metadata.owner_references == new.metadata.owner_references
        {
            return;
        }
        for machine in [old, new].into_iter().flatten() {
            let Some(owner) = controller(&machine.metadata) else { continue };
            for set in self.stores.sets.find(SetIndex::Uid, &owner.uid) {
                let key = FreezeKey::Set(ObjectName::of(set.as_ref()));
                add_of_set(&self.queue, key, &set, change.priority());
            }
        }
    }

    /// A set changed: its replicas may differ, and its deployment shows whether the set is frozen.
    fn set(&self, change: &Change<MachineSet>) {
        let Some(set) = change.latest() else { return };
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same_metadata(&old.metadata, &new.metadata)
            && old.spec == new.spec
            && set_conditions(old) == set_conditions(new)
        {
            return;
        }
        if let Some(owner) = controller(&set.metadata) {
            for owner in self.stores.deployments.find_names(DeploymentIndex::Uid, &owner.uid) {
                self.queue.add(FreezeKey::Deployment(owner), change.priority());
            }
        }
        let name = ObjectName::of(set.as_ref());
        if change.is_news_to(OF_SET, &name) {
            self.queue.add(FreezeKey::Set(name), change.priority());
        }
    }

    /// A deployment changed: its sets may have fewer or more Machines now.
    fn deployment(&self, change: &Change<MachineDeployment>) {
        let Some(deployment) = &change.new else { return };
        if let Some(old) = &change.old
            && is_same_metadata(&old.metadata, &deployment.metadata)
            && old.spec == deployment.spec
            && conditions(old) == conditions(deployment)
        {
            return;
        }
        for set in self.stores.sets.find_names(SetIndex::Controller, deployment.uid()) {
            self.queue.add(FreezeKey::Set(set), change.priority());
        }
        let name = ObjectName::of(deployment.as_ref());
        if change.is_news_to(OF_DEPLOYMENT, &name) {
            self.queue.add(FreezeKey::Deployment(name), change.priority());
        }
    }
}

/// Whether two versions of an object have the same metadata, as far as a freeze reads it.
fn is_same_metadata(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.uid == new.uid
        && old.labels == new.labels
        && old.annotations == new.annotations
        && old.owner_references == new.owner_references
        && old.deletion_timestamp == new.deletion_timestamp
}

fn set_conditions(set: &MachineSet) -> &[MachineSetCondition] {
    set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

fn conditions(deployment: &MachineDeployment) -> &[MachineDeploymentCondition] {
    deployment.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}
