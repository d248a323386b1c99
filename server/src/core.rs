//! The core as one value: started, asked whether it is ready, stopped.

use ostler_api::ProviderName;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::Stream;
use futures::future::BoxFuture;
use kube::Client;
use ostler_autoscaler::AutoscalerListener;
use ostler_controllers::{
    Clock, Clusters, Connect, Controllers, GivenIds, Scaler, Settings, StoreClassSource, Stores,
    Targets, cluster_ids, find_home, until_answered,
};
use ostler_legacy::{LegacyMetrics, LegacyOptions};
use ostler_sessions::{
    AdminOptions, Authenticator, Limits, OperationInfo, OrphanDesk, OrphanReport, Rate, Refused,
    ServeError, Sessions, SessionsOptions, Timing,
};
use ostler_trace::Traces;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Connected, TcpIncoming};

use crate::access::{Access, DriverToken, TOKEN_AUDIENCE};
use crate::admin::AdminListener;
use crate::health::{self, Health};

/// The options of a core.
#[derive(Clone)]
pub struct CoreOptions {
    /// How the controllers behave.
    pub settings: Settings,
    /// See [`ostler_controllers::cluster_ids`].
    pub cluster: GivenIds,
    /// Token files of drivers that may dial in.
    pub tokens: Vec<DriverToken>,
    /// The file that binds other drivers to providers, see `--driver-access`.
    pub access_file: Option<PathBuf>,
    /// The audience that ServiceAccount tokens of drivers must have.
    pub token_audience: String,
    /// Decides who may dial in, in place of tokens, access file and ServiceAccounts.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// How many operations a second are sent, by provider or alias; without limit for others.
    pub rates: BTreeMap<ProviderName, Rate>,
    /// Concurrent connections of drivers, see [`crate::Shares::drivers`].
    pub driver_connections: usize,
    /// For how long drivers may come back with operations of an earlier core, see [`Timing::adoption`].
    pub adoption: Duration,
    /// The source of the time.
    pub clock: Clock,
    /// The cluster that Nodes of Machines join.
    pub target: TargetCluster,
    /// Where spans go.
    pub traces: Traces,
}

/// The cluster that Nodes of Machines join.
#[derive(Clone, Default)]
pub enum TargetCluster {
    /// The cluster with the Machines.
    #[default]
    Control,
    /// Another cluster. The client must not retry by itself, see [`Controllers::new`].
    Other(Client),
    /// Each Machine names its own by label `cluster.x-k8s.io/cluster-name`; secret
    /// `<cluster>-kubeconfig` beside the Machine says how it is reached.
    BySecret {
        /// Makes a client of the kubeconfig.
        connect: Connect,
        /// How many are watched at the same time.
        most: usize,
    },
    /// None: Machines are Available once their instances are initialized.
    None,
}

impl fmt::Debug for TargetCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "Control",
            Self::Other(_) => "Other",
            Self::BySecret { .. } => "BySecret",
            Self::None => "None",
        })
    }
}

impl Default for CoreOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            cluster: GivenIds::default(),
            tokens: Vec::new(),
            access_file: None,
            token_audience: TOKEN_AUDIENCE.to_owned(),
            authenticator: None,
            rates: BTreeMap::new(),
            driver_connections: Limits::default().connections,
            adoption: Timing::default().adoption,
            clock: ostler_controllers::system_clock(),
            target: TargetCluster::Control,
            traces: Traces::default(),
        }
    }
}

impl fmt::Debug for CoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreOptions")
            .field("settings", &self.settings)
            .field("cluster", &self.cluster)
            .field("tokens", &self.tokens)
            .field("access_file", &self.access_file)
            .field("token_audience", &self.token_audience)
            .field("rates", &self.rates)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// For an orderly end: less than the 30 s that Kubernetes gives a process.
const STOP: Duration = Duration::from_secs(20);

/// A running core. Dropping the core ends it immediately, like a crash.
pub struct Core {
    sessions: Sessions,
    legacy: LegacyMetrics,
    stores: Stores,
    scaler: Scaler,
    classes: StoreClassSource,
    orphans: Arc<dyn OrphanDesk>,
    leading: watch::Receiver<bool>,
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// Serves drivers until the given future is over.
type Serve = Box<
    dyn FnOnce(Sessions, BoxFuture<'static, ()>) -> BoxFuture<'static, Result<(), ServeError>>
        + Send,
>;

impl Core {
    /// Starts a core that takes drivers from `incoming` while leading. `client` must not retry by itself, see
    /// [`Controllers::new`]. Everything is counted in `registry`.
    ///
    /// # Errors
    /// There is no cluster id to work with.
    pub fn start<I, IO, E>(
        client: Client,
        incoming: I,
        options: CoreOptions,
        registry: &mut Registry,
    ) -> BoxFuture<'_, anyhow::Result<Self>>
    where
        I: Stream<Item = Result<IO, E>> + Send + 'static,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        // Of the core only this depends on the kind of connection. All else is compiled once, here.
        let serve = |sessions: Sessions, over| -> BoxFuture<'static, _> {
            Box::pin(async move { sessions.serve(incoming, over).await })
        };
        Self::serving(client, Box::new(serve), options, registry)
    }

    /// The same, with drivers that dial in to a TCP port.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_tcp(
        client: Client,
        listener: TcpListener,
        options: CoreOptions,
        registry: &mut Registry,
    ) -> BoxFuture<'_, anyhow::Result<Self>> {
        // Without TCP_NODELAY every small frame waits for the acknowledgement of the frame before.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        Self::start(client, incoming, options, registry)
    }

    fn serving(
        client: Client,
        serve: Serve,
        options: CoreOptions,
        registry: &mut Registry,
    ) -> BoxFuture<'_, anyhow::Result<Self>> {
        Box::pin(Self::open(client, serve, options, registry))
    }

    async fn open(
        client: Client,
        serve: Serve,
        options: CoreOptions,
        registry: &mut Registry,
    ) -> anyhow::Result<Self> {
        let CoreOptions {
            settings,
            cluster,
            tokens,
            access_file,
            token_audience,
            authenticator,
            rates,
            driver_connections,
            adoption,
            clock,
            target,
            traces,
        } = options;
        let access = match authenticator {
            Some(given) => given,
            None => {
                Arc::new(Access::open(client.clone(), token_audience, tokens, access_file).await?)
            }
        };
        let settings = until_answered(|| find_home(&client, &settings)).await?;
        let ids = until_answered(|| cluster_ids(&client, &settings, &cluster, &clock)).await?;
        let stores = Stores::new(match target {
            TargetCluster::Control => Targets::one(client.clone()),
            TargetCluster::Other(target) => Targets::one(target),
            TargetCluster::None => Targets::None,
            TargetCluster::BySecret { connect, most } => {
                Targets::Several(Arc::new(Clusters::new(connect, most)))
            }
        });
        let classes =
            StoreClassSource::new(stores.clone(), settings.namespaces.clone(), &settings.home);
        let sessions_options = SessionsOptions {
            cluster_id: ids.own,
            previous_cluster_ids: ids.previous,
            core_instance: settings.identity.clone(),
            aliases: settings.aliases.clone(),
            rates,
            limits: Limits { connections: driver_connections, ..Limits::default() },
            timing: Timing { adoption, ..Timing::default() },
            traces,
        };
        let sessions = Sessions::new(sessions_options, Arc::new(classes.clone()), access);
        sessions.register_metrics(registry);
        let legacy = LegacyMetrics::default();
        legacy.register(registry);
        let controllers =
            Controllers::new(client, stores.clone(), sessions.clone(), settings, clock, registry);

        let (orphans, scaler) = (controllers.orphans(), controllers.scaler());
        let stop = CancellationToken::new();
        let (told, leading) = watch::channel(false);
        let mut tasks = JoinSet::new();
        // Listens whether or not this process leads: a driver that dials in to the wrong process is told so, and need
        // not find out by waiting. Ends when leadership does.
        let over = leadership_over(controllers.leadership(), told, stop.clone());
        let drivers = serve(sessions.clone(), Box::pin(over));
        tasks.spawn(async move { drivers.await.context("drivers cannot be served") });
        let end = stop.clone();
        tasks.spawn(async move { controllers.run(end).await.context("the controllers stopped") });
        Ok(Self { sessions, legacy, stores, scaler, classes, orphans, leading, tasks, stop })
    }

    /// Answers people on `listener` until the core stops, whether it leads or not.
    pub fn serve_admin(&mut self, listener: AdminListener) {
        let sessions = self.sessions.clone();
        let targets = Arc::new(self.classes.clone());
        let (orphans, leading) = (Arc::clone(&self.orphans), self.leading.clone());
        let routes = sessions.admin_service(AdminOptions { targets, orphans, leading });
        let end = self.stop.clone();
        self.tasks.spawn(async move {
            if let Err(error) = listener.serve(routes, sessions, end.clone()).await {
                tracing::warn!(%error, "the admin listener of this core has failed");
            }
            // The core works without.
            end.cancelled().await;
            Ok(())
        });
    }

    /// Answers autoscalers on `listener` until the core stops, whether it leads or not.
    pub fn serve_autoscaler(&mut self, listener: AutoscalerListener) {
        let (scaler, end) = (self.scaler.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            if let Err(error) = listener.serve(scaler, end.clone()).await {
                tracing::warn!(%error, "the listener for autoscalers of this core has failed");
            }
            // The core works without.
            end.cancelled().await;
            Ok(())
        });
    }

    /// Shows `registry` on loopback until the core stops, whether it leads or not.
    ///
    /// # Errors
    /// The address cannot be listened on, or is not on loopback.
    pub async fn serve_metrics(
        &mut self,
        address: SocketAddr,
        connections: usize,
        registry: Registry,
    ) -> anyhow::Result<()> {
        let listener = health::bind(address, false).await?;
        let (shown, end) = (Health::default(), self.stop.clone());
        shown.show(registry, self.synced());
        self.tasks.spawn(async move {
            if let Err(error) = health::serve(listener, connections, shown, end.clone()).await {
                tracing::warn!(%error, "the listener for metrics of this core has failed");
            }
            // The core works without.
            end.cancelled().await;
            Ok(())
        });
        Ok(())
    }

    /// Answers autoscalers, for a test without a listener.
    pub fn scaler(&self) -> Scaler {
        self.scaler.clone()
    }

    /// Takes drivers of the first proposal from `incoming` while this core leads. Legacy drivers show no credentials:
    /// give the core only connections from this host.
    pub fn serve_legacy<I, IO, E>(&mut self, incoming: I, options: LegacyOptions)
    where
        I: Stream<Item = Result<IO, E>> + Send + 'static,
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let (sessions, mut leading) = (self.sessions.clone(), self.leading.clone());
        let metrics = self.legacy.clone();
        self.tasks.spawn(async move {
            if leading.wait_for(|leads| *leads).await.is_err() {
                return Ok(());
            }
            let over = async move { while leading.changed().await.is_ok() {} };
            let served = ostler_legacy::serve(&sessions, incoming, options, metrics, over).await;
            served.context("legacy drivers cannot be served")
        });
    }

    /// Waits until this core leads and takes drivers.
    ///
    /// # Errors
    /// A part of the core failed for good.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let leads = self.leads();
        tokio::select! {
            leads = leads => leads,
            error = self.failure() => Err(error),
        }
    }

    /// Waits until this core leads; failures that prevent leadership go unnoticed here.
    ///
    /// # Errors
    /// The core stopped before.
    pub fn leads(&self) -> impl Future<Output = anyhow::Result<()>> + use<> {
        let mut leading = self.leading.clone();
        async move {
            let leads = leading.wait_for(|leads| *leads).await;
            leads.map(drop).context("the core stopped before it led")
        }
    }

    /// Becomes true once the caches are complete. Does not depend on leadership.
    pub fn synced(&self) -> watch::Receiver<bool> {
        let (told, synced) = watch::channel(false);
        let stores = self.stores.clone();
        tokio::spawn(async move {
            stores.synced().await;
            told.send_replace(true);
        });
        synced
    }

    /// Waits until a driver has dialled in with this principal's token and is ready.
    pub fn driver_ready(&self, principal: &str) -> impl Future<Output = ()> + use<> {
        let (sessions, principal) = (self.sessions.clone(), principal.to_owned());
        async move {
            let mut events = sessions.subscribe();
            while !sessions.providers().iter().any(|it| it.ready && it.principal == principal) {
                match events.recv().await {
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        }
    }

    /// The providers with a driver that is ready.
    pub fn connected(&self) -> Vec<String> {
        let ready = self.sessions.providers().into_iter().filter(|it| it.ready);
        ready.map(|it| it.provider.to_string()).collect()
    }

    /// The known orphans.
    ///
    /// # Errors
    /// The API server did not answer.
    pub async fn orphans(&self) -> Result<OrphanReport, Refused> {
        self.orphans.list(String::new()).await
    }

    /// The operations that drivers have now, oldest first, at most `limit`.
    pub fn in_flight(&self, limit: usize) -> Vec<OperationInfo> {
        self.sessions.in_flight(limit)
    }

    /// Returns when a part has failed for good. Losing the Lease is such a failure: another core may lead.
    pub async fn failure(&mut self) -> anyhow::Error {
        let first = self.tasks.join_next().await;
        if let Some(error) = first.and_then(failed) {
            return error;
        }
        // The listeners for drivers end with leadership, and may end before the controllers say why: the controllers
        // write their last events first. Nothing acts as the leader any more by then.
        let reason = timeout(STOP, async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Some(error) = failed(ended) {
                    return Some(error);
                }
            }
            None
        });
        let reason = reason.await.ok().flatten();
        reason.unwrap_or_else(|| anyhow::anyhow!("a part of the core ended by itself"))
    }

    /// Ends the core immediately, like a crash. Nothing of the core runs any more then.
    pub async fn abandon(mut self) {
        self.tasks.shutdown().await;
    }

    /// Stops in order: no new work, the work in hand, the sessions, the Lease. At the latest after 20 s.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if timeout(STOP, join_all(&mut self.tasks)).await.is_err() {
            tracing::warn!(limit = ?STOP, "the core did not stop in time; it breaks off");
            self.tasks.shutdown().await;
        }
    }
}

/// Why a part ended, unless it ended in order.
fn failed(ended: Result<anyhow::Result<()>, JoinError>) -> Option<anyhow::Error> {
    match ended {
        Ok(outcome) => outcome.err(),
        Err(panicked) => Some(anyhow::Error::new(panicked).context("a part of the core broke off")),
    }
}

async fn join_all(tasks: &mut JoinSet<anyhow::Result<()>>) {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a part of the core ended with an error"),
            Err(panicked) => tracing::warn!(error = %panicked, "a part of the core broke off"),
        }
    }
}

/// Waits until this process leads, which `told` hears, and then until it leads no more; or until `stop`.
async fn leadership_over<T>(
    mut leadership: watch::Receiver<Option<T>>,
    told: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let leads = tokio::select! {
        leads = leadership.wait_for(Option::is_some) => leads.is_ok(),
        () = stop.cancelled() => false,
    };
    if leads {
        told.send_replace(true);
        let _gone = leadership.wait_for(Option::is_none).await;
    }
}
