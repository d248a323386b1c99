//! The watch of a kind.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, Status};
use kube::discovery::{Scope, oneshot};
use kube::error::DiscoveryError;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use ostler_api::names::label;
use ostler_lifecycle::bootstrap::{ConfigKind, ConfigName, is_marked, is_template};
use tokio::time::{sleep, timeout};

use super::contents::{Contents, KindState};
use super::{CONFIG, Queues, pools_of, sets_of};
use crate::queue::{Backoff, Priority};
use crate::stores::{MachineIndex, Stores};
use crate::watch::{ObjectName, WatchMetrics, causes, status_of, watch_failed};

/// Longest wait for the discovery of a group's kinds.
const PATIENCE: Duration = Duration::from_secs(15);
/// A kind installed after a Machine named it is noticed within this time.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(10) };

/// The parts of the watch of one kind.
pub(super) struct Follower {
    pub(super) client: Client,
    pub(super) kind: ConfigKind,
    pub(super) contents: Arc<Contents>,
    pub(super) stores: Stores,
    pub(super) queues: Queues,
    pub(super) metrics: WatchMetrics,
}

impl Follower {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        let mut failures = 0_u32;
        loop {
            match self.discover().await {
                Ok(resource) => {
                    self.contents.found(resource.clone());
                    failures = 0;
                    self.watch(&resource).await;
                    self.set_state(KindState::Missing);
                }
                Err(state) => self.set_state(state),
            }
            failures = failures.saturating_add(1);
            sleep(AGAIN.delay(failures)).await;
        }
    }

    /// Asks the API server for the resource of the kind.
    async fn discover(&self) -> Result<ApiResource, KindState> {
        let kind = GroupVersionKind::gvk(&self.kind.group, &self.kind.version, &self.kind.kind);
        let asked = timeout(PATIENCE, oneshot::pinned_kind(&self.client, &kind)).await;
        let found = asked.map_err(|_late| KindState::Unreadable("no answer".to_owned()))?;
        match found {
            Ok((resource, capabilities)) if capabilities.scope == Scope::Namespaced => {
                self.check_mark(&resource).await.map(|()| resource)
            }
            Ok(_) => Err(KindState::WithoutNamespace),
            Err(kube::Error::Discovery(DiscoveryError::MissingKind(_))) => Err(KindState::Missing),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(KindState::Missing),
            Err(kube::Error::Api(status)) => Err(KindState::Unreadable(refusal(&status))),
            Err(failure) => Err(KindState::Unreadable(failure.to_string())),
        }
    }

    /// Whether the kind is marked as a bootstrap provider's. A Machine must not take along whatever a user names.
    async fn check_mark(&self, resource: &ApiResource) -> Result<(), KindState> {
        // No Machine takes a template along.
        if self.kind.is_marked_by_group() || is_template(&self.kind.kind) {
            return Ok(());
        }
        let name = format!("{}.{}", resource.plural, resource.group);
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        match timeout(PATIENCE, definitions.get_metadata_opt(&name)).await {
            Ok(Ok(Some(found))) if is_marked(found.metadata.labels.as_ref()) => Ok(()),
            // A kind without a definition, of an extension API server, can have no mark.
            Ok(Ok(_)) => Err(KindState::Unmarked),
            Ok(Err(kube::Error::Api(status))) => Err(KindState::Unreadable(refusal(&status))),
            Ok(Err(failure)) => Err(KindState::Unreadable(failure.to_string())),
            Err(_late) => Err(KindState::Unreadable("no answer".to_owned())),
        }
    }

    /// Watches until the kind is gone.
    async fn watch(&self, resource: &ApiResource) {
        let api = Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            &self.kind.namespace,
            resource,
        );
        let metrics = self.metrics.of(CONFIG);
        let mut stream = pin!(watcher(api, watcher::Config::default()));
        let mut failures = 0_u32;
        while let Some(item) = stream.next().await {
            match item {
                Ok(event) => {
                    if !matches!(event, watcher::Event::Init) {
                        failures = 0;
                    }
                    metrics.events.inc();
                    self.take_in(event);
                }
                Err(failure) if is_gone(&failure) => return,
                Err(failure) => {
                    metrics.errors.inc();
                    failures = failures.saturating_add(1);
                    self.failed(&failure);
                    sleep(AGAIN.delay(failures)).await;
                }
            }
        }
    }

    fn take_in(&self, event: watcher::Event<DynamicObject>) {
        let (changed, first) = self.contents.apply(event);
        if first {
            return self.wake_all();
        }
        if !changed.is_empty() {
            // Copies wake no set: one that cannot make a Machine would be woken by the copy that it made for it.
            if is_template(&self.kind.kind) {
                self.wake_sets();
            }
            self.wake_pools();
        }
        for name in changed {
            let config = ConfigName { kind: self.kind.clone(), name };
            let machines = &self.stores.machines;
            self.add(machines.find_names(MachineIndex::BootstrapConfig, &config.key()));
        }
    }

    /// After a failure the last complete list stays valid until the watch works again.
    fn failed(&self, failure: &watcher::Error) {
        watch_failed(&self.kind.to_string(), failure);
        if !self.contents.is_synced() {
            let why = status_of(failure).map_or_else(|| causes(failure), refusal);
            self.set_state(KindState::Unreadable(why));
        }
    }

    fn set_state(&self, state: KindState) {
        if self.contents.set_state(state) {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let machines = &self.stores.machines;
        self.add(machines.find_names(MachineIndex::BootstrapKind, &self.kind.key()));
        self.wake_sets();
        self.wake_pools();
    }

    fn wake_pools(&self) {
        for pool in pools_of(&self.stores, &self.kind) {
            self.queues.pools.add(pool, Priority::Change);
        }
    }

    fn wake_sets(&self) {
        for set in sets_of(&self.stores, &self.kind) {
            self.queues.sets.add(set, Priority::Change);
        }
    }

    fn add(&self, machines: Vec<ObjectName>) {
        for name in machines {
            self.queues.machines.add(name, Priority::Change);
        }
    }
}

/// The API server does not serve the kind any more.
fn is_gone(failure: &watcher::Error) -> bool {
    status_of(failure).is_some_and(|status| status.code == 404)
}

/// The message for the operator, who can grant access.
fn refusal(status: &Status) -> String {
    let Status { code, message, .. } = status;
    match code {
        403 => {
            let name = label::AGGREGATE_TO_CORE;
            format!("{message}; grant access with a ClusterRole labelled {name}: \"true\"")
        }
        _ => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_reported_with_the_role_that_grants_it() {
        let status = Status {
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "recipes is forbidden: the core cannot list it".to_owned(),
            ..Status::default()
        };
        let failure = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        assert_eq!(
            status_of(&failure).map(refusal).as_deref(),
            Some(
                "recipes is forbidden: the core cannot list it; \
                 grant access with a ClusterRole labelled ostler.dev/aggregate-to-core: \"true\""
            )
        );
        assert!(!is_gone(&failure));
    }
}
