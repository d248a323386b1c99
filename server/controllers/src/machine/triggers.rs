//! Wakes Machines.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use ostler_api::machine::MachinePhase;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, ProviderName, Uid};
use ostler_lifecycle::replacement::limit;
use ostler_lifecycle::unmanaged_nodes::is_not_managed;
use ostler_sessions::Sessions;

use super::{Machines, State};
use crate::events::Recorder;
use crate::kind::Kind as _;
use crate::orphans::OrphanScans;
use crate::queue::Priority;
use crate::stores::MachineIndex;
use crate::target::Target;
use crate::triggers::{DriverChange, Triggers, Woken};
use crate::watch::{Change, ObjectName};

/// State shared by passes over Machines and their triggers.
pub(crate) struct Shared {
    pub(crate) state: Arc<State>,
    pub(crate) scans: OrphanScans,
    pub(crate) recorder: Recorder,
    pub(crate) sessions: Sessions,
}

impl Woken<Machines, Shared> {
    /// A Machine is gone. Its state in memory goes, too; other Machines may take its update slot.
    fn gone(&self, gone: &Machine, priority: Priority) {
        self.ask_for_scan(gone);
        self.own.recorder.forget(gone.uid());
        self.own.sessions.abandon(gone.uid());
        for uid in self.own.state.forget(gone.uid()) {
            self.add_all(self.stores.machines.find_names(MachineIndex::Uid, &uid), priority);
        }
    }

    /// A Machine that disappeared before we removed its finalizer may have left its instance behind.
    fn ask_for_scan(&self, gone: &Machine) {
        if self.own.state.has_ended(gone.uid()) {
            return;
        }
        let namespace = gone.metadata.namespace.clone().unwrap_or_default();
        let class = self.stores.classes.get(&ObjectName::new(namespace, &gone.spec.class.name));
        if let Some(class) = class {
            self.own.scans.ask(&self.settings.driver_name(class.provider()));
        }
    }

    fn drained(&self, mut names: Vec<ObjectName>) -> Vec<ObjectName> {
        let machines = &self.stores.machines;
        names.retain(|name| machines.get(name).is_some_and(|machine| machine.is_drained()));
        names
    }
}

impl Triggers for Woken<Machines, Shared> {
    /// The Machine, Machines that shared its provider id, and Machines next in turn.
    fn machine(&self, change: &Change<Machine>) {
        let priority = change.priority();
        if let Some(name) = change.new.as_deref().map(ObjectName::of)
            && change.is_news_to(Machines::NAME, &name)
        {
            self.queue.add(name, priority);
        }
        if let Some(gone) = change.gone() {
            self.gone(gone, priority);
        }
        let Some(old) = &change.old else { return };
        let next = self.stores.next_in_line(old, change.new.as_deref(), &self.settings.lifecycle);
        self.add_all(next, priority);
        let now = change.new.as_ref().and_then(|machine| machine.provider_id());
        if let Some(freed) = old.provider_id().filter(|old| Some(*old) != now) {
            let freed = self.stores.machines.find_names(MachineIndex::ProviderId, freed.as_str());
            self.add_all(freed, priority);
        }
    }

    /// The users of the class.
    fn class(&self, change: &Change<MachineClass>) {
        let Some(class) = change.latest() else { return };
        self.add_all(self.stores.users(&ObjectName::of(class.as_ref())), change.priority());
    }

    /// Machines of the classes with this secret, and Machines with user data from the secret.
    fn secret(&self, change: &Change<Secret>) {
        let Some(secret) = change.latest() else { return };
        let name = ObjectName::of(secret.as_ref());
        for class in self.stores.namers(&name) {
            self.add_all(self.stores.users(&class), change.priority());
        }
        let booting =
            self.stores.machines.find_names(MachineIndex::BootstrapSecret, &name.to_string());
        self.add_all(booting, change.priority());
    }

    /// Unhealthy Machines may wait for the budget in the deployment's annotation.
    fn deployment(&self, change: &Change<MachineDeployment>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && limit(old) != limit(new)
        {
            self.add_all(self.stores.waiting_of(new), change.priority());
        }
    }

    /// Machines of a deleted pool wait for its deletion.
    fn pool(&self, change: &Change<MachinePool>) {
        if let Some(gone) = change.gone() {
            let left = self.stores.machines.find_names(MachineIndex::Controller, gone.uid());
            self.add_all(left, change.priority());
        }
    }

    /// Machines to which the Node may belong.
    fn node(&self, target: &Target, change: &Change<Node>) {
        for node in [&change.old, &change.new].into_iter().flatten() {
            if !is_not_managed(node) {
                let mut machines = self.stores.machines_of(target, node);
                machines.retain(|machine| change.is_news_to(Machines::NAME, machine));
                self.add_all(machines, change.priority());
            }
        }
    }

    /// The Machine whose Node is being drained of the pod.
    fn pod(&self, target: &Target, change: &Change<Pod>) {
        if let Some(old) = change.gone() {
            self.own.state.evictions.forget(old.metadata.uid.as_deref().unwrap_or_default());
        }
        let Some(pod) = change.latest() else { return };
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
            return;
        };
        let node = ObjectName::cluster(node);
        let by_label = self.stores.machines.find_names(MachineIndex::Node, &node.name);
        let by_node = target.nodes.get(&node).map(|node| self.stores.machines_of(target, &node));
        let drained = |name: &ObjectName| {
            let machine = self.stores.machines.get(name).filter(|machine| target.is_of(machine));
            machine.is_some_and(|machine| machine.is_drained())
        };
        let names = by_label.into_iter().chain(by_node.unwrap_or_default());
        self.add_all(names.filter(drained), change.priority());
    }

    /// As many evictions as it allows now.
    fn budget(&self, target: &Target, change: &Change<PodDisruptionBudget>) {
        let Some(budget) = change.latest() else { return };
        let allows = |budget: &Arc<PodDisruptionBudget>| {
            let status = budget.status.as_ref();
            usize::try_from(status.map_or(0, |status| status.disruptions_allowed)).unwrap_or(0)
        };
        let pods = change.new.as_ref().map_or(usize::MAX, allows);
        let (cluster, name) = (target.cluster.as_ref(), ObjectName::of(budget.as_ref()));
        let freed = self.own.state.evictions.retry_held_by(cluster, &name.to_string(), pods);
        self.add_all(freed, change.priority());
    }

    /// The Machine whose Node is being drained, and Machines that wait until the volume is attached elsewhere.
    fn attachment(&self, target: &Target, change: &Change<VolumeAttachment>) {
        let Some(attachment) = change.latest() else { return };
        let node = ObjectName::cluster(&attachment.spec.node_name);
        if let Some(node) = target.nodes.get(&node) {
            let machines = self.stores.machines_of(target, &node);
            self.add_all(self.drained(machines), change.priority());
        }
        if attachment.status.as_ref().is_some_and(|status| status.attached) {
            let following = self.stores.machines.find_names(MachineIndex::FollowsVolumes, "");
            self.add_all(following, change.priority());
        }
    }

    fn drains(&self) {
        self.add_all(self.drained(self.stores.machines.names()), Priority::Change);
    }

    fn cluster(&self, cluster: &ObjectName) {
        let machines = self.stores.machines.find_names(MachineIndex::Cluster, &cluster.to_string());
        self.add_all(machines, Priority::Background);
    }

    /// The deletions of its pods are no longer watched.
    fn closed(&self, target: &Target) {
        for pod in target.pods.all() {
            self.own.state.evictions.forget(pod.metadata.uid.as_deref().unwrap_or_default());
        }
    }

    /// Machines with an unhealthy Node.
    fn health(&self, cluster: Option<&ObjectName>) {
        let machines = &self.stores.machines;
        let all = match cluster {
            Some(cluster) => machines.find(MachineIndex::Cluster, &cluster.to_string()),
            None => machines.all(),
        };
        let unhealthy = all.iter().filter(|one| one.phase() == MachinePhase::Unknown);
        let names = unhealthy.map(|one| ObjectName::of(one.as_ref()));
        self.add_all(names, Priority::Background);
    }

    fn everything(&self) {
        self.add_all(self.stores.machines.names(), Priority::Background);
    }

    fn operation(&self, uid: &Uid) {
        let machines = self.stores.machines.find_names(MachineIndex::Uid, uid.as_str());
        self.add_all(machines, Priority::Change);
    }

    fn driver(&self, provider: &ProviderName, change: DriverChange) {
        for class in self.settings.served_by(provider, self.stores.classes.all()) {
            self.add_all(self.stores.users(&ObjectName::of(class.as_ref())), change.priority());
        }
    }

    fn instance(&self, machine: &Machine) {
        self.queue.add(ObjectName::of(machine), Priority::Change);
    }
}
