//! Wakes deployments.

use ostler_api::{Machine, MachineClass, MachineDeployment, MachineSet};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::selector;

use super::Deployments;
use crate::autoscaler::{is_scaled, shown_otherwise};
use crate::fleet::{Fleet, FleetKind as _};
use crate::stores::DeploymentIndex;
use crate::triggers::{Triggers, Woken, add_of_set};
use crate::watch::{Change, ObjectName};

impl Woken<Fleet<Deployments>> {
    /// The deployment that controls a set; without a controller, all deployments that select the set.
    fn owners(&self, set: &MachineSet) -> Vec<ObjectName> {
        let deployments = &self.stores.deployments;
        if let Some(owner) = controller(&set.metadata) {
            return deployments.find_names(DeploymentIndex::Uid, &owner.uid);
        }
        let there = set.namespace();
        let mut all = deployments.find(DeploymentIndex::Namespace, there);
        let labels = set.metadata.labels.as_ref();
        all.retain(|one| {
            one.spec.selector.as_ref().is_some_and(|selector| selector::matches(selector, labels))
        });
        all.iter().map(|one| ObjectName::of(one.as_ref())).collect()
    }

    fn add<K>(&self, name: ObjectName, change: &Change<K>) {
        if change.is_news_to(Deployments::NAME, &name) {
            self.queue.add(name, change.priority());
        }
    }
}

impl Triggers for Woken<Fleet<Deployments>> {
    /// A deployment learns of a Machine by the status of its set; only when the Machine is gone, it may have waited for that
    /// itself.
    fn machine(&self, change: &Change<Machine>) {
        let (Some(gone), None) = (&change.old, &change.new) else { return };
        for set in self.stores.sets_of(gone) {
            for owner in self.owners(&set) {
                add_of_set(&self.queue, owner, &set, change.priority());
            }
        }
    }

    fn set(&self, change: &Change<MachineSet>) {
        for set in [&change.old, &change.new].into_iter().flatten() {
            self.owners(set).into_iter().for_each(|owner| self.add(owner, change));
        }
    }

    /// Autoscalers read on a deployment what its class says of a Node.
    fn class(&self, change: &Change<MachineClass>) {
        let Some(class) = shown_otherwise(change) else { return };
        let there = class.namespace();
        for user in self.stores.deployments.find(DeploymentIndex::Namespace, there) {
            if user.spec.template.spec.class.name == class.name() && is_scaled(&user.metadata) {
                self.add(ObjectName::of(user.as_ref()), change);
            }
        }
    }

    fn deployment(&self, change: &Change<MachineDeployment>) {
        if let Some(gone) = change.gone() {
            self.stores.unseen.forget(gone.uid());
        }
        if let Some(deployment) = change.latest() {
            self.add(ObjectName::of(deployment.as_ref()), change);
        }
    }
}
