//! The whole stack in one process: embedded API, core and fake driver over in-memory pipes, all on tokio's clock.
//!
//! With `#[tokio::test(start_paused = true)]` hours of timeouts pass in milliseconds.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use http_body_util::Either;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Client, Resource};
use ostler_api::machine::Machine;
use ostler_apiserver::serve::{ApiServer, LocalService, Options as ApiOptions};
use ostler_autoscaler::wire::cloud_provider_client::CloudProviderClient;
use ostler_driver_fake::calls::{Call, CallLog};
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_fake::{FakeDriver, Kubelets, PROVIDER};
use ostler_driver_sdk::{ConnectError, Connection, Connector, Driver, Options, run_with};
use ostler_server::{Core, CoreOptions, DriverToken, Scaler, Settings, Throttle};
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server};
use tower::util::option_layer;
use tower::{Layer as _, Service as _, service_fn};

use crate::legacy_driver;
use crate::rights::{self, Asked, Request};
pub use crate::setup::Setup;
use crate::setup::{late, mutated, scattered};
use crate::tools::root;
use crate::wire::Wire;

const TOKEN: &str = "a token of the tests";

/// Everything that runs.
#[expect(missing_debug_implementations, reason = "a client cannot be shown")]
pub struct World {
    directory: TempDir,
    start: (Timestamp, Instant),
    client: Client,
    cloud: Cloud,
    api: ApiServer,
    core: Option<Box<Core>>,
    wire: Wire,
    driver: Option<Task>,
    kubelets: Option<Task>,
    calls: CallLog,
    legacy: Wire,
    cores: AtomicU32,
    /// The current pod of the driver: a crash keeps the pod, an upgrade makes a new one.
    pods: u32,
    core_number: u32,
    setup: Setup,
    asked: Asked,
    /// Changes of machines that cores asked for.
    changes: Arc<AtomicU64>,
    /// Creations of machines that cores asked for.
    creations: Arc<AtomicU64>,
    metrics: Mutex<Registry>,
}

/// A cluster beside that of the world: an embedded API without anything in it.
#[derive(Debug)]
pub struct Cluster {
    api: ApiServer,
}

impl Cluster {
    /// Starts it. Make it before the world: both count time from here.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start() -> Self {
        let start = (epoch(), Instant::now());
        let options = ApiOptions { clock: Arc::new(move || at(start)), ..ApiOptions::memory() };
        Self { api: ApiServer::open(options).await.expect("the API server opens") }
    }

    /// A client of its API.
    pub fn client(&self) -> Client {
        Client::new(self.api.local_service(), "default")
    }

    /// The API service, for tests with a wrapper.
    pub fn service(&self) -> LocalService {
        self.api.local_service()
    }

    /// Ends it.
    pub async fn stop(self) {
        self.api.close().await;
    }
}

/// A task that runs until the token is cancelled.
type Task = (CancellationToken, JoinHandle<()>);

impl World {
    /// Starts all of it and applies the examples but for the machine.
    ///
    /// # Panics
    /// If a part does not start.
    pub async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    /// Starts all of it with something different.
    ///
    /// # Panics
    /// If a part does not start.
    pub async fn start_with(setup: Setup) -> Self {
        let start = (epoch(), Instant::now());
        let now: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || at(start));
        let options = ApiOptions { clock: now.clone(), ..ApiOptions::memory() };
        let api = ApiServer::open(options).await.expect("the API server opens");
        let client = Client::new(api.local_service(), "default");
        let directory = TempDir::new().expect("temporary directories can be made");
        std::fs::write(directory.path().join("token"), TOKEN).expect("the directory is ours");
        let clock = Clock::new(move || now());
        let cloud = Cloud::in_memory(clock.clone());
        let mut world = Self {
            directory,
            start,
            client,
            cloud,
            api,
            core: None,
            wire: Wire::default(),
            legacy: Wire::default(),
            driver: None,
            kubelets: None,
            calls: CallLog::in_memory(setup.deaths.at_requests(clock)),
            cores: AtomicU32::new(0),
            pods: 0,
            core_number: 0,
            setup,
            asked: Asked::default(),
            changes: Arc::default(),
            creations: Arc::default(),
            metrics: Mutex::default(),
        };
        for crd in ostler_api::crds() {
            world.create(&crd).await;
        }
        world.apply_file("secret.yaml").await;
        world.apply_file("class.yaml").await;
        world.start_core().await;
        world.start_kubelets();
        world.start_driver();
        world
    }

    /// A client of the API server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A cluster-autoscaler's client of the running core, over a connection of its own.
    ///
    /// # Panics
    /// If no core runs.
    pub async fn autoscaler(&self) -> CloudProviderClient<Channel> {
        let scaler = self.core.as_ref().expect("a core runs").scaler();
        serve_autoscaler(scaler).await
    }

    /// The fake cloud.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The time, as every part sees it.
    pub fn now(&self) -> Timestamp {
        at(self.start)
    }

    /// Starts a core, after [`Self::stop_core`] or [`Self::crash_core`].
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_core(&mut self) {
        let number = self.cores.fetch_add(1, Ordering::Relaxed);
        self.core_number = number;
        self.wire.cut();
        let predecessor = number.checked_sub(1).map(|last| format!("core-{last}"));
        let mut core = self.new_core(number, predecessor).await;
        // Else the driver would meet a core that does not lead yet, and dial again a little later.
        core.ready().await.expect("the core leads");
        self.legacy.cut();
        let connections = self.legacy.lead_to(number);
        let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
        core.serve_legacy(incoming, legacy_driver::options());
        self.core = Some(Box::new(core));
    }

    /// Starts another core beside the running core. Drivers dial the cores in turn.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_replica(&self) -> Replica {
        let number = self.cores.fetch_add(1, Ordering::Relaxed);
        let core = self.new_core(number, None).await;
        Replica { core, number, wire: self.wire.clone() }
    }

    async fn new_core(&self, number: u32, predecessor: Option<String>) -> Core {
        Box::pin(self.try_core(number, predecessor)).await.expect("the core starts")
    }

    /// Why another core does not even start; `None`: it does, and is dropped.
    pub async fn refusal(&self) -> Option<String> {
        let number = self.cores.fetch_add(1, Ordering::Relaxed);
        self.try_core(number, None).await.err()
    }

    fn options(&self, number: u32, predecessor: Option<String>) -> CoreOptions {
        let start = self.start;
        let settings = Settings {
            identity: format!("core-{number}"),
            predecessor,
            // Tests of sets ask for more; without them a day on the paused clock is shorter.
            controllers: "machine".parse().expect("there is such a controller"),
            ..Settings::default()
        };
        let mut options = CoreOptions {
            settings,
            tokens: vec![DriverToken {
                name: "fake".to_owned(),
                providers: Some([PROVIDER.to_owned()].into()),
                file: self.directory.path().join("token"),
            }],
            clock: Arc::new(move || at(start)),
            ..CoreOptions::default()
        };
        (self.setup.tune)(&mut options);
        options
    }

    async fn try_core(&self, number: u32, predecessor: Option<String>) -> Result<Core, String> {
        let connections = self.wire.lead_to(number);
        let options = self.options(number, predecessor);
        let Setup {
            api_takes: takes,
            forbids,
            conflict_one_in,
            watches_lag,
            loses_creations,
            webhook,
            rate,
            ..
        } = self.setup;
        let api = self.api.local_service();
        let (changes, creations) = (Arc::clone(&self.changes), Arc::clone(&self.creations));
        let (deaths, asked) = (Arc::clone(&self.setup.deaths), self.asked.clone());
        let api = service_fn(move |request: http::Request<Body>| {
            let (mut api, changes) = (api.clone(), Arc::clone(&changes));
            let (creations, deaths) = (Arc::clone(&creations), Arc::clone(&deaths));
            let asked = asked.clone();
            async move {
                let request = asked.note(request).await;
                if !takes.is_zero() {
                    sleep(takes).await;
                }
                if let Some(forbidden) = Request::of_http(&request).filter(forbids) {
                    return Ok(rights::refusal(&forbidden).map(Either::Left));
                }
                let changes_machine = request.method() == Method::PATCH
                    && request.uri().path().contains("/machines/");
                if conflict_one_in > 0
                    && changes_machine
                    && scattered(changes.fetch_add(1, Ordering::Relaxed))
                        .is_multiple_of(conflict_one_in)
                {
                    return Ok(rights::conflict().map(Either::Left));
                }
                let watches = request.uri().query().is_some_and(|it| it.contains("watch=true"));
                let lag = if watches { watches_lag } else { Duration::ZERO };
                let creates =
                    request.method() == Method::POST && request.uri().path().ends_with("/machines");
                let request = match webhook.filter(|_| creates) {
                    Some(webhook) => mutated(request, webhook).await,
                    None => request,
                };
                let dies = deaths.is_due(request.method(), request.uri().path());
                let answer = api.call(request).await;
                deaths.die_if(dies).await;
                if creates && creations.fetch_add(1, Ordering::Relaxed) < loses_creations {
                    std::future::pending::<()>().await;
                }
                answer.map(|answer| answer.map(|body| Either::Right(late(body, lag))))
            }
        });
        let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
        let mut registry = Registry::default();
        let api = option_layer(rate.map(Throttle::new)).layer(api);
        let core = Core::start(Client::new(api, "default"), incoming, options, &mut registry).await;
        *self.metrics.lock().expect("no thread panicked") = registry;
        core.map_err(|error| format!("{error:#}"))
    }

    /// Stops the core in an orderly way.
    pub async fn stop_core(&mut self) {
        if let Some(core) = self.core.take() {
            // Drivers that come back meanwhile find the other replicas, if there are any.
            let number = self.core_number;
            self.wire.forget(number);
            core.stop().await;
        }
    }

    /// Drops the core where it stands: no farewell to drivers, no release of the Lease.
    pub fn crash_core(&mut self) {
        self.core = None;
        self.wire.cut();
        self.legacy.cut();
    }

    /// The network between the core and drivers of the first proposal.
    pub fn legacy(&self) -> Wire {
        self.legacy.clone()
    }

    /// Starts the kubelets of the instances. They need no driver, as in a real cloud.
    fn start_kubelets(&mut self) {
        let end = CancellationToken::new();
        let kubelets = Kubelets::new(
            self.cloud.clone(),
            self.setup.joins.clone().unwrap_or_else(|| self.client()),
        );
        let task = tokio::spawn({
            let end = end.clone();
            async move { kubelets.run(end).await.expect("the kubelets end in an orderly way") }
        });
        self.kubelets = Some((end, task));
    }

    /// The kubelets fall silent, without a word.
    pub fn crash_kubelets(&mut self) {
        if let Some((_, task)) = self.kubelets.take() {
            task.abort();
        }
    }

    /// The metrics of the last started core, as a scraper reads them.
    ///
    /// # Panics
    /// If it cannot be written down.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let registry = self.metrics.lock().expect("no thread panicked");
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("strings grow");
        text
    }

    /// The requests of every core of this world to its API server.
    pub fn asked(&self) -> BTreeSet<Request> {
        self.asked.all()
    }

    /// The calls of the drivers, and their answers.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.recent()
    }

    /// Starts the driver.
    pub fn start_driver(&mut self) {
        self.driver = Some(self.launch_driver());
    }

    /// As a rolling update does it: another replica is started, then the one before is told to end. Returns at the end
    /// of the old replica.
    ///
    /// # Panics
    /// If the one before did not end in an orderly way.
    pub async fn replace_driver(&mut self) {
        self.pods += 1;
        let next = self.launch_driver();
        // The time that a new pod is given to get ready.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        self.stop_driver().await;
        self.driver = Some(next);
    }

    /// Starts another driver in the place of the fake one.
    pub fn run_driver<D: Driver>(&mut self, driver: D) {
        self.driver = Some(self.launch(driver));
    }

    /// The network between drivers and cores, for a driver that the world does not run.
    pub fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// Cuts every connection between driver and core; both live on.
    pub fn cut_links(&self) {
        self.wire.hang_up();
    }

    fn launch_driver(&self) -> Task {
        self.launch(FakeDriver::new(self.cloud.clone()).call_log(self.calls.clone()))
    }

    fn launch<D: Driver>(&self, driver: D) -> Task {
        let end = CancellationToken::new();
        let wire = self.wire.clone();
        let connector = Connector::new(move || {
            let wire = wire.clone();
            async move {
                let dial = service_fn(move |_| {
                    let wire = wire.clone();
                    async move { wire.dial().await.map(TokioIo::new) }
                });
                let channel = Endpoint::from_static("http://core")
                    .connect_with_connector(dial)
                    .await
                    .map_err(|_no_core| ConnectError::Timeout)?;
                Connection::new(channel).with_token(TOKEN)
            }
        });
        let pod = self.pods;
        let options =
            Options::new(connector).shutdown(end.clone()).instance_name(format!("driver-{pod}"));
        let options = options.traces(self.setup.traces.clone());
        let task = tokio::spawn(async move {
            run_with(driver, options).await.expect("the driver ends in an orderly way");
        });
        (end, task)
    }

    /// Ends the driver as SIGTERM does.
    ///
    /// # Panics
    /// If it did not end in an orderly way.
    pub async fn stop_driver(&mut self) {
        if let Some((end, task)) = self.driver.take() {
            end.cancel();
            task.await.expect("the driver ends");
        }
    }

    /// Drops the driver at once; its cloud stays.
    pub fn crash_driver(&mut self) {
        if let Some((_, task)) = self.driver.take() {
            task.abort();
            self.wire.hang_up();
        }
    }

    /// Creates an object.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<DynamicType = ()>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let api = Api::<K>::all(self.client());
        api.create(&PostParams::default(), object).await.expect("the object is accepted")
    }

    /// Creates an object from JSON in the default namespace.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn apply<K>(&self, object: serde_json::Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let typed: K = serde_json::from_value(object).expect("the manifest has the right shape");
        let api = Api::<K>::default_namespaced(self.client());
        api.create(&PostParams::default(), &typed).await.expect("the object is accepted")
    }

    /// Merges JSON into a machine.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn patch_machine(&self, name: &str, patch: serde_json::Value) {
        let api = Api::<Machine>::default_namespaced(self.client());
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("the patch is accepted");
    }

    /// Waits until the machine is as `condition` wants it.
    ///
    /// # Panics
    /// If it never is: the paused clock runs out of things to wait for.
    pub async fn until(&self, name: &str, what: &str, condition: impl Condition<Machine>) {
        let api = Api::<Machine>::default_namespaced(self.client());
        let day = std::time::Duration::from_hours(24);
        // It holds several Machines: in each test that waits they would be on the stack.
        let waiting = Box::pin(await_condition(api.clone(), name, condition));
        let waited = tokio::time::timeout(day, waiting).await;
        let Ok(met) = waited else {
            let machine = api.get_opt(name).await;
            panic!("{name} was never {what} within a day: {machine:#?}");
        };
        met.expect("machines can be watched");
    }

    /// Everything ends in order.
    ///
    /// # Panics
    /// If a core made a request that `deploy/base` does not allow it.
    pub async fn stop(mut self) {
        let mut options = CoreOptions::default();
        (self.setup.tune)(&mut options);
        let Settings { namespaces, home, .. } = options.settings;
        // For a prefix the whole cluster is watched, and the role has to be one of the cluster.
        let whole = namespaces.first().is_none();
        let served = |namespace: &str| {
            namespaces.contains(namespace) || namespace == home || whole && namespace.is_empty()
        };
        let refused = rights::refused(&self.asked(), &served);
        assert!(refused.is_empty(), "no role in deploy/base allows the core to {refused:#?}");
        self.stop_core().await;
        self.stop_driver().await;
        if let Some((end, task)) = self.kubelets.take() {
            end.cancel();
            task.await.expect("the kubelets end");
        }
        self.api.close().await;
    }

    async fn apply_file(&self, file: &str) {
        let path = root().join("deploy/examples/fake").join(file);
        let text = std::fs::read_to_string(&path).expect("the example is there");
        let object: kube::api::DynamicObject =
            serde_saphyr::from_str(&text).expect("the example is YAML");
        let types = object.types.clone().expect("the example has a kind");
        let kind = kube::core::GroupVersionKind::try_from(&types).expect("the kind is well formed");
        let resource = kube::api::ApiResource::from_gvk(&kind);
        Api::<kube::api::DynamicObject>::default_namespaced_with(self.client(), &resource)
            .create(&PostParams::default(), &object)
            .await
            .expect("the example is accepted");
    }
}

/// A core beside the first one.
#[derive(Debug)]
pub struct Replica {
    /// The core.
    pub core: Core,
    number: u32,
    wire: Wire,
}

impl Replica {
    /// Stops it in an orderly way; drivers do not meet it any more.
    pub async fn stop(self) {
        self.wire.forget(self.number);
        self.core.stop().await;
    }
}

/// A client of the service for autoscalers of a core.
///
/// # Panics
/// If it does not connect.
pub async fn serve_autoscaler(scaler: Scaler) -> CloudProviderClient<Channel> {
    let wire = Wire::default();
    let incoming = ReceiverStream::new(wire.lead_to(0)).map(Ok::<_, std::io::Error>);
    let server = Server::builder().add_routes(ostler_autoscaler::routes(scaler));
    tokio::spawn(async move {
        let _keeps_listening = server.serve_with_incoming(incoming).await;
    });
    CloudProviderClient::new(wire.connect().await.expect("the service listens"))
}

fn epoch() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

fn at((base, since): (Timestamp, Instant)) -> Timestamp {
    base + since.elapsed()
}
