//! Objects of bootstrap providers, whose kinds are unknown until a Machine names them.
//!
//! Each kind named by Machines has one watch, a task with its own backoff. The watch ends when no Machine names the
//! kind any more. A kind that the API server does not serve yet is retried.

mod contents;
mod follow;

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use ostler_api::names::bootstrap::{DATA_KEY, FORMAT_KEY};
use ostler_api::{Machine, MachinePool, MachineSet};
use ostler_lifecycle::bootstrap::{
    BootstrapView, ConfigFacts, ConfigKind, ConfigName, ConfigView, DataSecretView, config_of,
    data_secret,
};
use ostler_lifecycle::copies::{CopiesView, Made, Template, template_of};
use ostler_lifecycle::operation::UserData;
use ostler_lifecycle::pool::{ConfigsView, Noted, config_kinds, config_template, noted};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use self::contents::Contents;
use self::follow::Follower;
use crate::queue::{Priority, Queue};
use crate::stores::{MachineIndex, PoolIndex, SetIndex, Stores};
use crate::triggers::Triggers;
use crate::watch::{Change, ObjectName, WatchMetrics};

/// Most kinds watched for one namespace. Only a handful of bootstrap providers exist; more kinds are probably an
/// attack, and take nothing from other namespaces.
const MAX_KINDS: usize = 16;
/// Watches of all namespaces together. Each has a connection's stream and a cache.
const MAX_WATCHES: usize = 512;

/// Longest format, in bytes, that is passed on.
const MAX_FORMAT: usize = 64;

/// The kind of these objects in metrics: the number of kind names is unbounded.
pub(crate) const CONFIG: &str = "BootstrapConfig";

/// The queues woken by changes of the objects.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    pub(crate) machines: Arc<Queue<ObjectName>>,
    pub(crate) sets: Arc<Queue<ObjectName>>,
    pub(crate) pools: Arc<Queue<ObjectName>>,
}

/// Watches the kinds that Machines name, those of the templates that sets and pools name, and those of their copies.
#[derive(Debug)]
pub(crate) struct Configs {
    client: DebugClient,
    stores: Stores,
    queues: Queues,
    metrics: WatchMetrics,
    kinds: Gauge,
    watched: Mutex<HashMap<ConfigKind, Watched>>,
}

/// A client in a struct that derives `Debug`.
struct DebugClient(Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[derive(Debug)]
struct Watched {
    contents: Arc<Contents>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Triggers for Configs {
    fn machine(&self, change: &Change<Machine>) {
        self.follow(change, |machine| config_of(machine).ok().flatten().map(|it| it.kind));
    }

    fn set(&self, change: &Change<MachineSet>) {
        let kinds = |set: &MachineSet| template(set).map(|it| [it.name.kind, it.copies]);
        self.follow(change, |set| kinds(set).into_iter().flatten());
    }

    fn pool(&self, change: &Change<MachinePool>) {
        self.follow(change, config_kinds);
    }
}

/// The template that a set names.
fn template(set: &MachineSet) -> Option<Template> {
    template_of(set.metadata.namespace.as_deref(), &set.spec.template.spec).ok().flatten()
}

/// The sets with a template of the kind, or with copies of the kind.
fn sets_of(stores: &Stores, kind: &ConfigKind) -> Vec<ObjectName> {
    let mut sets = stores.sets.find(SetIndex::Namespace, &kind.namespace);
    sets.retain(|set| template(set).is_some_and(|it| [&it.name.kind, &it.copies].contains(&kind)));
    sets.iter().map(|set| ObjectName::of(set.as_ref())).collect()
}

/// The pools for which this kind is watched.
fn pools_of(stores: &Stores, kind: &ConfigKind) -> Vec<ObjectName> {
    let mut pools = stores.pools.find(PoolIndex::Namespace, &kind.namespace);
    pools.retain(|pool| config_kinds(pool).contains(kind));
    pools.iter().map(|pool| ObjectName::of(pool.as_ref())).collect()
}

impl Configs {
    pub(crate) fn new(
        client: Client,
        stores: Stores,
        queues: Queues,
        metrics: WatchMetrics,
        registry: &mut Registry,
    ) -> Self {
        let kinds = Gauge::default();
        let help = "Kinds of bootstrap configs that are watched";
        registry.register("ostler_bootstrap_kinds", help, kinds.clone());
        let (client, watched) = (DebugClient(client), Mutex::default());
        Self { client, stores, queues, metrics, kinds, watched }
    }

    /// Starts the watches of the kinds that it names now, and stops those of kinds that nothing names any more.
    fn follow<T, K>(&self, change: &Change<T>, kinds: impl Fn(&T) -> K)
    where
        K: IntoIterator<Item = ConfigKind>,
    {
        let of = |it: &Option<Arc<T>>| it.as_deref().into_iter().flat_map(&kinds).collect();
        let (old, new): (BTreeSet<_>, BTreeSet<_>) = (of(&change.old), of(&change.new));
        for kind in old.difference(&new) {
            self.end_if_unused(kind);
        }
        for kind in new.difference(&old) {
            self.begin(kind);
        }
    }

    /// Watches the kind if a machine names it: a pass may still look at a deleted machine. False: too many kinds are
    /// watched already.
    fn begin(&self, kind: &ConfigKind) -> bool {
        let mut watched = self.watched.lock();
        // Checked under the lock: if the last machine goes now, the watch ends after the check.
        if watched.contains_key(kind) || !self.is_used(kind) {
            return true;
        }
        if is_full(&watched, &kind.namespace) {
            let (namespace, most) = (&kind.namespace, MAX_KINDS);
            warn!(%kind, namespace, most, "too many kinds of bootstrap configs to watch another");
            return false;
        }
        info!(%kind, namespace = kind.namespace, "watching a kind of bootstrap configs");
        let contents = Arc::new(Contents::of(kind));
        let follower = Follower {
            client: self.client.0.clone(),
            kind: kind.clone(),
            contents: Arc::clone(&contents),
            stores: self.stores.clone(),
            queues: self.queues.clone(),
            metrics: self.metrics.clone(),
        };
        let task = tokio::spawn(follower.run()).abort_handle();
        watched.insert(kind.clone(), Watched { contents, task });
        self.count(&watched);
        true
    }

    fn is_used(&self, kind: &ConfigKind) -> bool {
        self.stores.machines.count(MachineIndex::BootstrapKind, &kind.key()) > 0
            || !sets_of(&self.stores, kind).is_empty()
            || !pools_of(&self.stores, kind).is_empty()
    }

    fn end_if_unused(&self, kind: &ConfigKind) {
        let was_full = {
            let mut watched = self.watched.lock();
            let was_full = is_full(&watched, &kind.namespace);
            if self.is_used(kind) || watched.remove(kind).is_none() {
                return;
            }
            self.count(&watched);
            was_full
        };
        info!(%kind, "no machine names this kind of bootstrap configs any more");
        if was_full {
            // Another machine may wait for the free slot.
            for name in self.stores.machines.names() {
                self.queues.machines.add(name, Priority::Background);
            }
            for set in self.stores.sets.names() {
                self.queues.sets.add(set, Priority::Background);
            }
            for pool in self.stores.pools.names() {
                self.queues.pools.add(pool, Priority::Background);
            }
        }
    }

    fn count(&self, watched: &HashMap<ConfigKind, Watched>) {
        self.kinds.set(i64::try_from(watched.len()).unwrap_or(i64::MAX));
    }

    /// The bootstrap state of a machine.
    pub(crate) fn view(&self, machine: &Machine) -> BootstrapView {
        if machine.spec.bootstrap.is_none() {
            return BootstrapView::default();
        }
        let config = config_of(machine).ok().flatten();
        BootstrapView {
            config: config.map_or(ConfigView::Unknown, |config| self.config(&config)),
            secret: self.secret(machine),
        }
    }

    /// The template of a set, and its copies.
    pub(crate) fn copies(&self, set: &MachineSet) -> Option<CopiesView> {
        let seen = self.template(template(set)?);
        let CopiesView { of, plural, .. } = &seen;
        let has_machine =
            |name: &str| self.stores.machines.has(&ObjectName::new(&of.copies.namespace, name));
        let owned = self.contents(&of.copies).map(|it| it.owned_by(set.uid())).unwrap_or_default();
        let left = owned.into_iter().filter(|(name, _)| !has_machine(name));
        let made = |(name, facts): (String, Arc<ConfigFacts>)| Made {
            kind: of.copies.clone(),
            plural: plural.clone(),
            name,
            uid: facts.uid.clone(),
            of: facts.copy_of.clone(),
        };
        let left = left.map(made).collect();
        Some(CopiesView { left, ..seen })
    }

    /// The template that a pool names, and its copies.
    pub(crate) fn of_pool(&self, pool: &MachinePool) -> ConfigsView {
        let template = config_template(pool).ok().flatten();
        let noted = noted(pool).map(|name| {
            let view = self.config(&name);
            Noted { plural: self.plural(&name.kind), view, name }
        });
        let noted = noted.collect();
        ConfigsView { copies: template.map(|of| self.template(of)), noted }
    }

    fn template(&self, of: Template) -> CopiesView {
        let kind = self.config(&ConfigName { kind: of.copies.clone(), name: String::new() });
        let (template, plural) = (self.config(&of.name), self.plural(&of.copies));
        CopiesView { template, kind, plural, left: Vec::new(), of }
    }

    fn plural(&self, kind: &ConfigKind) -> String {
        self.resource(kind).map(|it| it.plural).unwrap_or_default()
    }

    fn contents(&self, kind: &ConfigKind) -> Option<Arc<Contents>> {
        self.watched.lock().get(kind).map(|watched| Arc::clone(&watched.contents))
    }

    fn config(&self, config: &ConfigName) -> ConfigView {
        if !self.begin(&config.kind) {
            return ConfigView::TooManyKinds;
        }
        let contents = self.contents(&config.kind);
        contents.map_or(ConfigView::Unknown, |contents| contents.view(&config.name))
    }

    /// The data secret, by name in the machine's namespace, while an instance may have to be created.
    fn secret(&self, machine: &Machine) -> DataSecretView {
        let Some(name) = data_secret(machine).filter(|_| !machine.is_deleting()) else {
            return DataSecretView::Unknown;
        };
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let secret = self.stores.secrets.get(&ObjectName::new(namespace, name));
        secret.map_or(DataSecretView::Missing, |secret| data_of(&secret))
    }

    /// The resource of a kind, after discovery.
    pub(crate) fn resource(&self, kind: &ConfigKind) -> Option<ApiResource> {
        self.contents(kind)?.resource()
    }

    /// Stores the answer to a write of ours.
    pub(crate) fn update(&self, kind: &ConfigKind, object: &DynamicObject) {
        if let Some(watched) = self.watched.lock().get(kind) {
            watched.contents.update(object);
        }
    }
}

/// Whether no further kind can be watched for this namespace.
fn is_full<T>(watched: &HashMap<ConfigKind, T>, namespace: &str) -> bool {
    let here = watched.keys().filter(|kind| kind.namespace == namespace).count();
    here >= MAX_KINDS || watched.len() >= MAX_WATCHES
}

pub(crate) fn data_of(secret: &Secret) -> DataSecretView {
    let of = |key| secret.data.as_ref().and_then(|data| data.get(key));
    let Some(value) = of(DATA_KEY) else { return DataSecretView::WithoutValue };
    let format = of(FORMAT_KEY).and_then(|format| std::str::from_utf8(&format.0).ok());
    let format = format.filter(|format| format.len() <= MAX_FORMAT).unwrap_or_default();
    DataSecretView::Known {
        revision: secret.metadata.resource_version.clone().unwrap_or_default().into(),
        data: UserData::new(value.0.clone()).in_format(format),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(data: &Value) -> DataSecretView {
        let secret = json!({ "metadata": { "resourceVersion": "7" }, "data": data });
        data_of(&serde_json::from_value(secret).unwrap())
    }

    #[test]
    fn the_kinds_of_one_namespace_take_no_place_of_another_one() {
        let kind = |namespace: &str, index: usize| {
            let (group, version) = ("bootstrap.example.com".to_owned(), "v1".to_owned());
            ConfigKind { namespace: namespace.to_owned(), group, version, kind: index.to_string() }
        };
        let mut watched: HashMap<_, _> = (0..15).map(|index| (kind("a", index), index)).collect();
        assert!(!is_full(&watched, "a"));
        watched.insert(kind("a", 15), 15);
        assert!(is_full(&watched, "a") && !is_full(&watched, "b"));
        watched.extend((0..MAX_WATCHES).map(|index| (kind(&index.to_string(), 0), 0)));
        assert!(is_full(&watched, "b"), "there is a limit for all");
    }

    #[test]
    fn user_data_come_with_their_format() {
        let both = json!({ "value": "e30=", "format": "aWduaXRpb24=" });
        let DataSecretView::Known { revision, data } = read(&both) else { panic!() };
        assert_eq!((revision.as_str(), data.bytes(), data.format()), ("7", &b"{}"[..], "ignition"));
        let DataSecretView::Known { data, .. } = read(&json!({ "value": "" })) else { panic!() };
        assert!(data.is_empty() && data.format().is_empty());
        assert_eq!(read(&json!({ "format": "eA==" })), DataSecretView::WithoutValue);
    }
}
