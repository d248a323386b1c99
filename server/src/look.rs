//! A core without a Lease: it takes drivers, asks for their instances, and changes nothing.

use ostler_api::ProviderName;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::runtime::watcher::Event;
use ostler_api::MachineClass;
use ostler_controllers::{Namespaces, StoreClassSource, Stores, Targets};
use ostler_lifecycle::cluster::ClusterIds;
use ostler_sessions::{Listeners, Sessions, SessionsOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, DriverToken, TOKEN_AUDIENCE};

/// The identity and scope of the look.
#[derive(Debug, Clone, Default)]
pub struct LookOptions {
    /// The cluster whose instances are ours.
    pub cluster: ClusterIds,
    /// The namespace of the classes.
    pub namespace: String,
    /// See [`SessionsOptions::aliases`].
    pub aliases: BTreeMap<ProviderName, ProviderName>,
    /// Token files of drivers that may dial in.
    pub tokens: Vec<DriverToken>,
    /// The file that binds other drivers to providers, see `--driver-access`.
    pub access_file: Option<PathBuf>,
    /// The classes for drivers, as read; nothing is read again.
    pub classes: Vec<MachineClass>,
    /// The secrets named by the classes.
    pub secrets: Vec<Secret>,
}

/// A core that looks. Dropping the value ends the core.
#[derive(Debug)]
pub struct Look {
    sessions: Sessions,
    stop: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Look {
    /// Takes drivers from these listeners.
    ///
    /// # Errors
    /// The access file cannot be used.
    pub fn start(
        client: Client,
        listeners: Listeners,
        options: LookOptions,
    ) -> BoxFuture<'static, anyhow::Result<Self>> {
        Box::pin(Self::open(client, listeners, options))
    }

    async fn open(
        client: Client,
        listeners: Listeners,
        options: LookOptions,
    ) -> anyhow::Result<Self> {
        let LookOptions { cluster, namespace, aliases, tokens, access_file, classes, secrets } =
            options;
        let audience = TOKEN_AUDIENCE.to_owned();
        let access = Arc::new(Access::open(client, audience, tokens, access_file).await?);
        let stores = Stores::new(Targets::None);
        for event in listed(classes) {
            stores.classes.apply(event);
        }
        for event in listed(secrets) {
            stores.secrets.apply(event);
        }
        let source = StoreClassSource::new(stores, Namespaces::one(&namespace), &namespace);
        let core_instance = format!("look-{}", std::process::id());
        let options = SessionsOptions {
            cluster_id: cluster.own,
            previous_cluster_ids: cluster.previous,
            core_instance,
            aliases,
            ..SessionsOptions::default()
        };
        let sessions = Sessions::new(options, Arc::new(source), access);
        sessions.look();
        let stop = CancellationToken::new();
        let (serving, end) = (sessions.clone(), stop.clone());
        let serving = tokio::spawn(async move {
            let served = serving.serve(listeners.incoming(), end.cancelled()).await;
            served.context("drivers cannot be served")
        });
        Ok(Self { sessions, stop, serving })
    }

    /// Where the questions are asked.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Tells the drivers, and ends their sessions.
    ///
    /// # Errors
    /// Drivers could not be served to the end.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.serving.await.context("the service for drivers broke off")?
    }
}

/// A complete list, as a watch brings it.
fn listed<K>(objects: Vec<K>) -> impl Iterator<Item = Event<K>> {
    let objects = objects.into_iter().map(Event::InitApply);
    [Event::Init].into_iter().chain(objects).chain([Event::InitDone])
}
