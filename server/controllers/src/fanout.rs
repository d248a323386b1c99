//! Maps changes to the keys that have to be reconciled.

mod checks;
mod fleet;
mod hint;
mod needs;
mod pools;
mod sessions;

use ostler_api::{ProviderId, ProviderName};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Resource;
use ostler_api::machine::MachinePhase;
use ostler_api::names::{LEADER_LEASE, label};
use ostler_api::{Machine, MachineClass};
use ostler_lifecycle::machine::has_own_instance;
use ostler_lifecycle::node::provider_id;
use ostler_lifecycle::unmanaged_nodes;
use ostler_sessions::Sessions;

use crate::api_health::ApiTransition;
use crate::bootstrap::Configs;
use crate::events::{EventRecord, Recorder, Severity};
use crate::freeze::FreezeKey;
use crate::home::Needs;
use crate::hot_update::ReviewKey;
use crate::machine::State;
use crate::orphans::OrphanScans;
use crate::pool::Groups;
use crate::queue::{Priority, Queue};
use crate::set::Pending;
use crate::settings::Settings;
use crate::stores::{MachineIndex, NodeIndex, PoolIndex, Stores, differs, kept_in};
use crate::target::{SECRET_SUFFIX, Target, cluster_of, secret_of};
use crate::watch::{By, Change, ObjectName};

/// The queues of all controllers.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    pub(crate) machines: Arc<Queue<ObjectName>>,
    pub(crate) classes: Arc<Queue<ObjectName>>,
    pub(crate) secrets: Arc<Queue<ObjectName>>,
    pub(crate) reviews: Arc<Queue<ReviewKey>>,
    pub(crate) scans: OrphanScans,
    pub(crate) nodes: Arc<Queue<ObjectName>>,
    pub(crate) sets: Arc<Queue<ObjectName>>,
    pub(crate) deployments: Arc<Queue<ObjectName>>,
    pub(crate) freezes: Arc<Queue<FreezeKey>>,
    pub(crate) pools: Arc<Queue<ObjectName>>,
    pub(crate) checks: Arc<Queue<ObjectName>>,
    pub(crate) home: Arc<Queue<ObjectName>>,
}

/// Adds the keys that a change concerns to the queues.
#[derive(Debug)]
pub(crate) struct Fanout {
    pub(crate) queues: Queues,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) state: Arc<State>,
    pub(crate) configs: Arc<Configs>,
    pub(crate) recorder: Recorder,
    pub(crate) sessions: Sessions,
    /// What sets wrote and do not see yet.
    pub(crate) pending: Arc<Pending>,
    /// What is known of the groups of pools.
    pub(crate) groups: Arc<Groups>,
    /// Whether this core is needed.
    pub(crate) needs: Needs,
}

/// For how long changes of many Machines are gathered.
const GATHERED: Duration = Duration::from_secs(1);
/// More Machines than this are many.
const MANY: usize = 100;

/// Adds an object, a pass over which looks at so many Machines, since one of them changed: many changes of many Machines
/// are one pass.
fn add_gathered(queue: &Queue<ObjectName>, name: ObjectName, machines: usize, priority: Priority) {
    if machines > MANY {
        queue.add_after(&name, GATHERED);
    } else {
        queue.add(name, priority);
    }
}

fn priority<K>(change: &Change<K>) -> Priority {
    if change.listed { Priority::Background } else { Priority::Change }
}

impl Fanout {
    /// A machine changed: reconciles it, its class when the machine is its first user or was its last, and machines
    /// that had to share its provider id.
    pub(crate) fn machine(&self, change: &Change<Machine>) {
        let priority = priority(change);
        self.needs();
        self.configs.machine(change);
        self.fleet_of(change);
        self.pool_of(change);
        self.checks_of(change);
        self.freeze_by_machine(change, priority);
        let key = |machine: &Arc<Machine>| ObjectName::of(machine.as_ref());
        if let Some(machine) = &change.new
            && change.is_news_to(By::Machine, &key(machine))
        {
            self.queues.machines.add(key(machine), priority);
        }
        if let Some(gone) = change.gone() {
            self.request_orphan_scan(gone);
            self.recorder.forget(gone.uid());
            self.sessions.abandon(gone.uid());
            for uid in self.state.forget(gone.uid()) {
                self.add_all(self.stores.machines.find_names(MachineIndex::Uid, &uid), priority);
            }
        }
        if let Some(old) = &change.old {
            let next =
                self.stores.next_in_line(old, change.new.as_deref(), &self.settings.lifecycle);
            self.add_all(next, priority);
        }
        self.nodes_between(change, priority);
        self.classes_between(change, priority);
        let cluster = |machine: &Arc<Machine>| cluster_of(machine);
        let (left, joined) =
            (change.old.as_ref().and_then(cluster), change.new.as_ref().and_then(cluster));
        if left != joined {
            self.stores.targets.check_again();
            for named in [left, joined].into_iter().flatten() {
                self.queues.secrets.add(secret_of(&named), priority);
            }
        }
        let id = |machine: &Arc<Machine>| machine.provider_id().cloned();
        let (old, new) = (change.old.as_ref().and_then(id), change.new.as_ref().and_then(id));
        if let Some(freed) = old.filter(|old| Some(old) != new.as_ref()) {
            self.add_all(
                self.stores.machines.find_names(MachineIndex::ProviderId, freed.as_str()),
                priority,
            );
        }
    }

    /// Classes that a machine comes to or leaves. To one that another machine uses, nothing changes; but of a list, all
    /// machines are cached before the first one is reported.
    fn classes_between(&self, change: &Change<Machine>, priority: Priority) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if let (Some(old), Some(new)) = (old, new)
            && old.spec.class == new.spec.class
        {
            return;
        }
        let is_another =
            |user: &Machine| change.latest().is_none_or(|machine| machine.uid() != user.uid());
        for machine in [old, new].into_iter().flatten() {
            let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
            let class = ObjectName::new(namespace, &machine.spec.class.name);
            if change.listed || !self.stores.is_used(&class, is_another) {
                self.queues.classes.add(class, priority);
            }
        }
    }

    /// Nodes that gain or lose a machine by a change.
    fn nodes_between(&self, change: &Change<Machine>, priority: Priority) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let link = |machine: &Machine| {
            let names = (machine.node_name().map(str::to_owned), machine.provider_id().cloned());
            let joined = machine.status.as_ref().and_then(|status| status.node_ref.clone());
            (names, machine.instance_id().cloned(), has_own_instance(machine), joined)
        };
        if old.is_some() && new.is_some() && old.map(link) == new.map(link) {
            return;
        }
        for machine in [old, new].into_iter().flatten() {
            for target in self.stores.targets.all() {
                let nodes = &target.nodes;
                let ids = machine.provider_id().into_iter().chain(machine.instance_id());
                let endings = ids.filter_map(|id| ProviderId::ending(id.as_str()));
                let by_id = endings.map(|ending| nodes.find_names(NodeIndex::Ending, &ending));
                let by_label = nodes.find_names(NodeIndex::MachineName, machine.name());
                let by_name = machine.node_name().map(ObjectName::cluster);
                let names = by_id.flatten().chain(by_label).chain(by_name);
                names.for_each(|name| self.queues.nodes.add(name, priority));
            }
        }
    }

    /// A machine that disappeared although we did not remove its finalizer may have left its instance behind.
    fn request_orphan_scan(&self, gone: &Machine) {
        if self.state.has_ended(gone.uid()) {
            return;
        }
        let namespace = gone.metadata.namespace.clone().unwrap_or_default();
        let class = self.stores.classes.get(&ObjectName::new(namespace, &gone.spec.class.name));
        if let Some(class) = class {
            self.queues.scans.ask(&self.settings.driver_name(class.provider()));
        }
    }

    /// A class changed: reconciles it, its secrets and its machines.
    pub(crate) fn class(&self, change: &Change<MachineClass>) {
        let priority = priority(change);
        let Some(class) = change.latest() else { return };
        let name = ObjectName::of(class.as_ref());
        self.needs();
        for (namespace, secret) in
            [&change.old, &change.new].into_iter().flatten().flat_map(|class| class.secret_refs())
        {
            self.queues.secrets.add(ObjectName::new(namespace, secret), priority);
        }
        self.add_all(self.stores.users(&name), priority);
        self.add_pools(self.stores.pools_of(&name), priority);
        self.queues.classes.add(name, priority);
        self.queues.scans.note(&self.settings.driver_name(class.provider()));
    }

    /// A secret changed: reconciles it, the machines of the classes that name it, and the machines that take their
    /// user data from it.
    pub(crate) fn secret(&self, change: &Change<Secret>) {
        let priority = priority(change);
        self.needs();
        let Some(secret) = change.latest() else { return };
        let name = ObjectName::of(secret.as_ref());
        for class in self.stores.namers(&name) {
            self.add_all(self.stores.users(&class), priority);
            self.add_pools(self.stores.pools_of(&class), priority);
            self.queues.classes.add(class, priority);
        }
        self.add_pools(
            self.stores.pools.find_names(PoolIndex::Secret, &name.to_string()),
            priority,
        );
        if let Some(kept) = kept_in(secret) {
            self.queues.classes.add(ObjectName::of(&kept.class), priority);
        }
        let booting =
            self.stores.machines.find_names(MachineIndex::BootstrapSecret, &name.to_string());
        self.add_all(booting, priority);
        if name.name.ends_with(SECRET_SUFFIX) {
            self.stores.targets.check_again();
        }
        self.queues.secrets.add(name, priority);
    }

    /// A Node changed in more than its heartbeat: reconciles the machines that it may belong to.
    pub(crate) fn node(&self, target: &Target, change: &Change<Node>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && !differs(old, new)
        {
            return;
        }
        if let Some(node) = change.new.as_ref().map(|node| ObjectName::of(node.as_ref()))
            && change.is_news_to(By::Node, &node)
        {
            self.queues.nodes.add(node, priority(change));
        }
        for node in [&change.old, &change.new].into_iter().flatten() {
            if !unmanaged_nodes::is_not_managed(node) {
                let mut machines = self.machines_of(target, node);
                for machine in machines.iter().filter_map(|it| self.stores.machines.get(it)) {
                    self.check_machine(&machine, priority(change));
                }
                machines.retain(|machine| change.is_news_to(By::Machine, machine));
                self.add_all(machines, priority(change));
            }
        }
    }

    /// A pod changed: reconciles the machine whose Node is being drained of it.
    pub(crate) fn pod(&self, target: &Target, change: &Change<Pod>) {
        if let Some(old) = change.gone() {
            self.state.evictions.forget(old.metadata.uid.as_deref().unwrap_or_default());
        }
        let Some(pod) = change.latest() else { return };
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
            return;
        };
        let node = ObjectName::cluster(node);
        let by_label = self.stores.machines.find_names(MachineIndex::Node, &node.name);
        let by_node = target.nodes.get(&node).map(|node| self.machines_of(target, &node));
        let drained = |name: &ObjectName| {
            let machine = self.stores.machines.get(name).filter(|machine| target.is_of(machine));
            machine.is_some_and(|machine| machine.is_drained())
        };
        let names = by_label.into_iter().chain(by_node.unwrap_or_default());
        self.add_all(names.filter(drained), priority(change));
    }

    /// A budget changed: retries as many evictions as it allows now.
    pub(crate) fn budget(&self, target: &Target, change: &Change<PodDisruptionBudget>) {
        let Some(budget) = change.latest() else { return };
        let allows = |budget: &Arc<PodDisruptionBudget>| {
            let status = budget.status.as_ref();
            usize::try_from(status.map_or(0, |status| status.disruptions_allowed)).unwrap_or(0)
        };
        let pods = change.new.as_ref().map_or(usize::MAX, allows);
        let (cluster, name) = (target.cluster.as_ref(), ObjectName::of(budget.as_ref()));
        let freed = self.state.evictions.retry_held_by(cluster, &name.to_string(), pods);
        self.add_all(freed, priority(change));
    }

    /// A VolumeAttachment changed: reconciles the machine whose Node is being drained of it, and the machines that
    /// wait for its volume to be attached elsewhere.
    pub(crate) fn attachment(&self, target: &Target, change: &Change<VolumeAttachment>) {
        let Some(attachment) = change.latest() else { return };
        let node = ObjectName::cluster(&attachment.spec.node_name);
        if let Some(node) = target.nodes.get(&node) {
            self.add_all(self.drained(self.machines_of(target, &node)), priority(change));
        }
        if attachment.status.as_ref().is_some_and(|status| status.attached) {
            let following = self.stores.machines.find_names(MachineIndex::FollowsVolumes, "");
            self.add_all(following, priority(change));
        }
    }

    /// A cache that drains need is complete for the first time.
    pub(crate) fn drains(&self) {
        self.add_all(self.drained(self.stores.machines.names()), Priority::Change);
    }

    fn drained(&self, mut names: Vec<ObjectName>) -> Vec<ObjectName> {
        let machines = &self.stores.machines;
        names.retain(|name| machines.get(name).is_some_and(|machine| machine.is_drained()));
        names
    }

    fn machines_of(&self, target: &Target, node: &Node) -> Vec<ObjectName> {
        let machines = &self.stores.machines;
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut found = machines.find_names(MachineIndex::Node, name);
        if let Some(id) = provider_id(node) {
            // Also in another spelling, by which the driver may call it equal, or which is to be named.
            let of_ending =
                ProviderId::ending(id).map(|it| machines.find(MachineIndex::Ending, &it));
            let may_have = |machine: &Arc<Machine>| {
                let ids = [machine.provider_id(), machine.instance_id()];
                ids.into_iter().flatten().any(|it| it.is_spelled(id) || it.may_equal(id))
            };
            let of_ending = of_ending.unwrap_or_default().into_iter().filter(may_have);
            found.extend(of_ending.map(|machine| ObjectName::of(&*machine)));
            // The cloud may spell the id in another way than the driver: then by the other Nodes of the instance.
            for other in target.nodes.find_names(NodeIndex::ProviderId, id) {
                found.extend(machines.find_names(MachineIndex::Node, &other.name));
            }
        }
        // The machine of that name may own it.
        found.extend(machines.find_names(MachineIndex::Name, name));
        let labels = node.metadata.labels.as_ref();
        if let Some(machine) = labels.and_then(|labels| labels.get(label::MACHINE_NAME)) {
            found.extend(machines.find_names(MachineIndex::Name, machine));
        }
        found.retain(|name| machines.get(name).is_some_and(|machine| target.is_of(&machine)));
        found
    }

    /// A target cluster became available or unavailable.
    pub(crate) fn cluster(&self, cluster: &ObjectName) {
        let machines = self.stores.machines.find_names(MachineIndex::Cluster, &cluster.to_string());
        self.add_all(machines, Priority::Background);
        self.all_checks();
    }

    /// Everything may have changed.
    pub(crate) fn everything(&self, priority: Priority) {
        self.add_all(self.stores.machines.names(), priority);
        self.add_pools(self.stores.pools.names(), priority);
        self.all_checks();
    }

    /// The API servers stopped answering, or answer again: reconciles every machine with an unhealthy Node, and
    /// records one event on the Lease that this core leads by.
    pub(crate) fn api_health(&self, transition: ApiTransition) {
        let (severity, reason, note) = match transition {
            ApiTransition::Back => return self.unhealthy(),
            ApiTransition::Frozen => (
                Severity::Warning,
                "MachineHealthFrozen",
                "an API server does not answer; no machine fails meanwhile",
            ),
            ApiTransition::Unfrozen => (
                Severity::Normal,
                "MachineHealthThawed",
                "the API servers answer; the outage is added to every health timeout",
            ),
        };
        self.record_on_lease(severity, reason, note.to_owned());
        self.unhealthy();
    }

    /// The API server drops fields of ours, or keeps them again.
    pub(crate) fn definitions(&self, outdated: Option<&str>) {
        let (severity, reason, note) = match outdated {
            Some(what) => (Severity::Warning, "CRDsOutdated", what),
            None => (Severity::Normal, "CRDsCurrent", "every field is kept; machines continue"),
        };
        self.record_on_lease(severity, reason, note.to_owned());
        self.everything(Priority::Background);
    }

    /// An event that concerns every machine is recorded once, on the Lease that this core leads by.
    fn record_on_lease(&self, severity: Severity, reason: &'static str, note: String) {
        let regarding = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some(LEADER_LEASE.to_owned()),
            namespace: Some(self.settings.home.clone()),
            ..ObjectReference::default()
        };
        self.recorder.record(EventRecord { regarding, severity, reason, action: "Check", note });
    }

    /// The API server of one of several target clusters stopped answering, or answers again.
    pub(crate) fn unhealthy_in(&self, cluster: &ObjectName) {
        let mut names =
            self.stores.machines.find_names(MachineIndex::Cluster, &cluster.to_string());
        let machines = &self.stores.machines;
        names.retain(|name| {
            machines.get(name).is_some_and(|one| one.phase() == MachinePhase::Unknown)
        });
        self.add_all(names, Priority::Background);
        self.all_checks();
    }

    fn unhealthy(&self) {
        self.all_checks();
        let machines = self.stores.machines.all();
        let unhealthy = machines.iter().filter(|one| one.phase() == MachinePhase::Unknown);
        self.add_all(unhealthy.map(|one| ObjectName::of(one.as_ref())), Priority::Background);
    }

    fn served_by(&self, provider: &ProviderName, priority: Priority) {
        for class in self.classes_of(provider) {
            let name = ObjectName::of(class.as_ref());
            self.add_all(self.stores.users(&name), priority);
            self.add_pools(self.stores.pools_of(&name), priority);
            self.queues.classes.add(name, priority);
        }
    }

    fn classes_of(&self, provider: &ProviderName) -> Vec<Arc<MachineClass>> {
        let mut classes = self.stores.classes.all();
        classes.retain(|class| self.settings.driver_name(class.provider()) == *provider);
        classes
    }

    fn warn_of_foreign_provider(&self, provider: &ProviderName, note: &str) {
        for class in self.classes_of(provider) {
            let regarding: ObjectReference = class.object_ref(&());
            self.recorder.record(EventRecord {
                regarding,
                severity: Severity::Warning,
                reason: "ForeignProvider",
                action: "Register",
                note: note.to_owned(),
            });
        }
    }

    fn add_all(&self, names: impl IntoIterator<Item = ObjectName>, priority: Priority) {
        names.into_iter().for_each(|name| self.queues.machines.add(name, priority));
    }
}

#[cfg(test)]
#[path = "fanout_tests.rs"]
mod tests;
