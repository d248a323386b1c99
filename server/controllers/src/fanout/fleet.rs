//! What changes mean for MachineSets and MachineDeployments.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use ostler_api::machine::{LastOperation, MachineState};
use ostler_api::names::annotation::{OPERATION, RELEASED_BY};
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::replacement::limit;
use ostler_lifecycle::selector;
use ostler_lifecycle::set::controller;

use super::{Fanout, priority};
use crate::set::add_gathered;
use crate::stores::{DeploymentIndex, SetIndex};
use crate::watch::{By, Change, ObjectName};

impl Fanout {
    /// A machine changed: reconciles the set that controls it, and sets that may adopt it. A deployment learns of it by
    /// the status of its set; only when the machine is gone, it may have waited for that itself.
    pub(super) fn fleet_of(&self, change: &Change<Machine>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && is_same(old, new)
        {
            return;
        }
        let priority = priority(change);
        for machine in [&change.old, &change.new].into_iter().flatten() {
            for set in self.sets_of(machine) {
                let name = ObjectName::of(set.as_ref());
                if change.new.is_none() {
                    for deployment in self.deployments_of(&set) {
                        add_gathered(&self.queues.deployments, deployment, &set, priority);
                    }
                }
                add_gathered(&self.queues.sets, name, &set, priority);
            }
        }
    }

    /// The set that controls a machine; for one without a controller, all that select it.
    fn sets_of(&self, machine: &Machine) -> Vec<Arc<MachineSet>> {
        let sets = &self.stores.sets;
        if let Some(owner) = controller(&machine.metadata) {
            return sets.find(SetIndex::Uid, &owner.uid);
        }
        let mut found = sets.find(SetIndex::Namespace, namespace(&machine.metadata));
        let labels = machine.metadata.labels.as_ref();
        found.retain(|set| {
            set.spec.selector.as_ref().is_some_and(|selector| selector::matches(selector, labels))
                || machine.annotation(RELEASED_BY) == Some(set.uid())
        });
        found
    }

    /// A set changed: reconciles it and its deployment. Others may adopt what one leaves behind that is gone.
    pub(crate) fn set(&self, change: &Change<MachineSet>) {
        let priority = priority(change);
        self.needs();
        self.freeze_by_set(change, priority);
        if let (Some(gone), None) = (&change.old, &change.new) {
            self.pending.forget(gone.uid());
            let there = namespace(&gone.metadata);
            for other in self.stores.sets.find_names(SetIndex::Namespace, there) {
                self.queues.sets.add(other, priority);
            }
        }
        for set in [&change.old, &change.new].into_iter().flatten() {
            self.add_deployments(self.deployments_of(set), change);
        }
        if let Some(set) = change.latest().map(|set| ObjectName::of(set.as_ref()))
            && change.is_news_to(By::Set, &set)
        {
            self.queues.sets.add(set, priority);
        }
    }

    /// The deployment that controls a set; for one without a controller, all that select it.
    fn deployments_of(&self, set: &MachineSet) -> Vec<ObjectName> {
        let deployments = &self.stores.deployments;
        let mut names = deployments.find_names(DeploymentIndex::Uid, owner_uid(&set.metadata));
        if controller(&set.metadata).is_none() {
            let all = deployments.find(DeploymentIndex::Namespace, namespace(&set.metadata));
            let labels = set.metadata.labels.as_ref();
            let selects = |one: &&Arc<MachineDeployment>| {
                let selector = one.spec.selector.as_ref();
                selector.is_some_and(|selector| selector::matches(selector, labels))
            };
            names.extend(all.iter().filter(selects).map(|one| ObjectName::of(one.as_ref())));
        }
        names
    }

    fn add_deployments<K>(&self, mut names: Vec<ObjectName>, change: &Change<K>) {
        names.retain(|name| change.is_news_to(By::Deployment, name));
        for name in names {
            self.queues.deployments.add(name, priority(change));
        }
    }

    /// A deployment changed. Unhealthy machines may wait for what its annotation allows.
    pub(crate) fn deployment(&self, change: &Change<MachineDeployment>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && limit(old) != limit(new)
        {
            self.add_all(self.stores.waiting_of(new), priority(change));
        }
        self.needs();
        self.freeze_by_deployment(change, priority(change));
        let name = change.latest().map(|deployment| ObjectName::of(deployment.as_ref()));
        self.add_deployments(name.into_iter().collect(), change);
    }
}

/// Whether two versions of a machine are the same to a set. Most writes to a machine are steps that no set reads.
fn is_same(old: &Machine, new: &Machine) -> bool {
    let (one, other) = (&old.metadata, &new.metadata);
    one.uid == other.uid
        && one.labels == other.labels
        && annotations(old).eq(annotations(new))
        && one.owner_references == other.owner_references
        && one.deletion_timestamp == other.deletion_timestamp
        && old.spec == new.spec
        && old.phase() == new.phase()
        && expiry(old) == expiry(new)
        && failure(old) == failure(new)
}

/// Without the one that changes with every operation.
fn annotations(machine: &Machine) -> impl Iterator<Item = (&String, &String)> {
    machine.metadata.annotations.iter().flatten().filter(|(key, _)| *key != OPERATION)
}

pub(super) fn expiry(machine: &Machine) -> Option<&Time> {
    let current = machine.status.as_ref()?.current_status.as_ref()?;
    current.preserve_expiry_time.as_ref()
}

fn failure(machine: &Machine) -> Option<&LastOperation> {
    let last = machine.status.as_ref()?.last_operation.as_ref()?;
    (last.state == Some(MachineState::Failed)).then_some(last)
}

fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

fn owner_uid(meta: &ObjectMeta) -> &str {
    controller(meta).map(|owner| owner.uid.as_str()).unwrap_or_default()
}
