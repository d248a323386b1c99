//! The watches, and the listeners to their changes.

mod sessions;
mod targets;

pub(crate) use sessions::SessionFollower;
pub(crate) use targets::{TargetController, TargetTriggers};

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use ostler_api::MachineClass;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tracing::error;

use crate::api_health::ApiHealth;
use crate::clock::Clock;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::target::Target;
use crate::triggers::{AllTriggers, Triggers};
use crate::watch::{self, Cache, CacheIndex, Change, Lenient, OnDemand, Reflector, WatchMetrics};

/// Starts watches. Each is a task of its own.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) all: AllTriggers,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: WatchMetrics,
    pub(crate) clock: Clock,
    pub(crate) api_health: Arc<ApiHealth>,
}

impl Watches {
    /// Machines, classes and secrets of the namespaces that are served.
    pub(crate) fn control(&self, to: &mut JoinSet<()>, client: &Client) {
        let stores = &self.stores;
        self.served(to, client, &stores.machines, |it, change| it.machine(change));
        self.served(to, client, &stores.classes, |it, change| {
            if is_more_than_status(change) {
                it.class(change);
            }
        });
        self.served(to, client, &stores.secrets, |it, change| it.secret(change));
        // Their definitions may not be there: that says nothing about the API server.
        self.watch_served(to, client, &stores.pools, |it, change| it.pool(change), false);
        self.watch_served(to, client, &stores.checks, |it, change| it.check(change), false);
    }

    /// MachineSets, MachineDeployments and MachineReserves of the namespaces that are served.
    pub(crate) fn fleet(&self, to: &mut JoinSet<()>, client: &Client) {
        let stores = &self.stores;
        self.served(to, client, &stores.sets, |it, change| it.set(change));
        self.served(to, client, &stores.deployments, |it, change| it.deployment(change));
        // Its definition may not be there: that says nothing about the API server.
        self.watch_served(to, client, &stores.reserves, |it, change| it.reserve(change), false);
    }

    /// Nodes and pods of a target cluster.
    pub(crate) fn target(&self, to: &mut JoinSet<()>, target: &Arc<Target>) {
        let of = Arc::clone(target);
        let nodes = Api::all(target.client.clone());
        let mut nodes = self.reflector(nodes, &target.nodes, |_, _| {});
        let all = self.all.clone();
        nodes.on_change = Box::new(move |change| guarded(|| all.node(&of, change)));
        self.start(to, nodes);
        let of = Arc::clone(target);
        let pods = Api::all(target.client.clone());
        let pods = self.reflector(pods, &target.pods, move |it, change| it.pod(&of, change));
        self.start(to, pods);
        let of = Arc::clone(target);
        self.on_demand(to, target, &target.attachments, move |it, change| {
            it.attachment(&of, change);
        });
        let of = Arc::clone(target);
        self.on_demand(to, target, &target.budgets, move |it, change| it.budget(&of, change));
        self.on_demand(to, target, &target.claims, |_, _| {});
        self.on_demand(to, target, &target.volumes, |_, _| {});
    }

    /// A watch that runs only while a drain needs it.
    fn on_demand<I>(
        &self,
        to: &mut JoinSet<()>,
        target: &Target,
        objects: &Arc<OnDemand<I>>,
        on_change: impl Fn(&dyn Triggers, &Change<I::Object>) + Send + Sync + 'static,
    ) where
        I: CacheIndex<Object: fmt::Debug + DeserializeOwned>,
    {
        let (watches, objects) = (self.clone(), Arc::clone(objects));
        let (api, on_change) = (Api::all(target.client.clone()), Arc::new(on_change));
        to.spawn(async move {
            let watch = |cache| {
                let on_change = Arc::clone(&on_change);
                let on_change =
                    move |it: &dyn Triggers, change: &Change<I::Object>| on_change(it, change);
                // The core may just lack the right; the other watches detect an API server that does not answer.
                let on_failure = Box::new(|| {});
                let reflector = watches.reflector(api.clone(), &cache, on_change);
                let reflector = Reflector { on_failure, ..reflector };
                watch::run(reflector, &watches.metrics, Arc::clone(&watches.clock))
            };
            objects.run(watch, || watches.all.tell(|it| it.drains())).await;
        });
    }

    fn served<I>(
        &self,
        to: &mut JoinSet<()>,
        client: &Client,
        cache: &Arc<Cache<I>>,
        on_change: fn(&dyn Triggers, &Change<I::Object>),
    ) where
        I: CacheIndex,
        I::Object: fmt::Debug + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        self.watch_served(to, client, cache, on_change, true);
    }

    /// `needed`: that the watch fails says that the API server may not answer.
    fn watch_served<I>(
        &self,
        to: &mut JoinSet<()>,
        client: &Client,
        cache: &Arc<Cache<I>>,
        on_change: fn(&dyn Triggers, &Change<I::Object>),
        needed: bool,
    ) where
        I: CacheIndex,
        I::Object: fmt::Debug + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        let served = &self.settings.namespaces;
        let parts = served.parts();
        cache.consists_of(parts.len());
        for part in parts {
            let api = match &part {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            let mut reflector = self.reflector(api, cache, on_change);
            if !needed {
                reflector.on_failure = Box::new(|| {});
            }
            self.start(to, Reflector { part, only: Some(served.clone()), ..reflector });
        }
    }

    fn reflector<I: CacheIndex>(
        &self,
        api: Api<Lenient<I::Object>>,
        cache: &Arc<Cache<I>>,
        on_change: impl Fn(&dyn Triggers, &Change<I::Object>) + Send + Sync + 'static,
    ) -> Reflector<I> {
        let (all, health) = (self.all.clone(), Arc::clone(&self.api_health));
        Reflector {
            api,
            config: watcher::Config::default(),
            part: None,
            only: None,
            cache: Arc::clone(cache),
            on_change: Box::new(move |change| {
                guarded(|| all.tell(|it| on_change(it, change)));
            }),
            on_failure: Box::new(move || health.check_again()),
        }
    }

    fn start<I>(&self, to: &mut JoinSet<()>, reflector: Reflector<I>)
    where
        I: CacheIndex<Object: fmt::Debug + DeserializeOwned>,
    {
        let (metrics, clock) = (self.metrics.clone(), Arc::clone(&self.clock));
        to.spawn(async move { watch::run(reflector, &metrics, clock).await });
    }
}

/// An object's content must not end the watch of all others of its kind.
pub(crate) fn guarded(act: impl FnOnce()) {
    let text = |panic: &(dyn Any + Send)| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
        error!(panic = text(&*panic), "a change could not be handled; please report this bug");
    }
}

/// Whether more than the status of a class changed: the core does not act on the status.
fn is_more_than_status(change: &Change<MachineClass>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let meta = |class: &MachineClass| ObjectMeta {
        resource_version: None,
        managed_fields: None,
        ..class.metadata.clone()
    };
    old.spec != new.spec || meta(old) != meta(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_cannot_be_handled_ends_nothing() {
        guarded(|| panic!("of this object"));
        guarded(|| std::panic::panic_any(1));
    }
}
