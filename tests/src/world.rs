//! The whole stack in one process: embedded API, core and fake driver over in-memory pipes, all on tokio's clock.
//!
//! With `#[tokio::test(start_paused = true)]` hours of timeouts pass in milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Client, Resource};
use ostler_api::machine::Machine;
use ostler_apiserver::serving::{ApiServer, Options as ApiOptions};
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_fake::{FakeDriver, Kubelets, PROVIDER};
use ostler_driver_sdk::{ConnectError, Connection, Connector, Options, run_with};
use ostler_server::{Core, CoreOptions, DriverToken, Settings};
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tower::service_fn;

use crate::tools::root;

/// Bytes that one direction of a pipe holds.
const PIPE: usize = 1 << 20;
const TOKEN: &str = "a token of the tests";

/// Everything that runs.
#[expect(missing_debug_implementations, reason = "a client cannot be shown")]
pub struct World {
    directory: TempDir,
    start: (Timestamp, Instant),
    client: Client,
    cloud: Cloud,
    api: ApiServer,
    core: Option<Core>,
    doors: Arc<std::sync::Mutex<mpsc::Sender<DuplexStream>>>,
    driver: Option<(CancellationToken, JoinHandle<()>)>,
    cores: AtomicU32,
}

impl World {
    /// Starts all of it and applies the examples but for the machine.
    ///
    /// # Panics
    /// If a part does not start.
    pub async fn start() -> Self {
        let start = (epoch(), Instant::now());
        let now: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || at(start));
        let options = ApiOptions { clock: now.clone(), ..ApiOptions::memory() };
        let api = ApiServer::open(options).await.expect("the API server opens");
        let client = Client::new(api.local_service(), "default");
        let directory = TempDir::new().expect("temporary directories can be made");
        std::fs::write(directory.path().join("token"), TOKEN).expect("the directory is ours");
        let cloud = Cloud::in_memory(Clock::new(move || now()));
        let (door, _) = mpsc::channel(1);
        let mut world = Self {
            directory,
            start,
            client,
            cloud,
            api,
            core: None,
            doors: Arc::new(std::sync::Mutex::new(door)),
            driver: None,
            cores: AtomicU32::new(0),
        };
        for crd in ostler_api::crds() {
            world.create(&crd).await;
        }
        world.apply_file("secret.yaml").await;
        world.apply_file("class.yaml").await;
        world.start_core().await;
        world.start_driver();
        world
    }

    /// A client of the API server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What the fake cloud holds.
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
        let (door, connections) = mpsc::channel(8);
        *self.doors.lock().expect("nobody panicked") = door;
        let start = self.start;
        let number = self.cores.fetch_add(1, Ordering::Relaxed);
        let settings = Settings {
            identity: format!("core-{number}"),
            predecessor: number.checked_sub(1).map(|last| format!("core-{last}")),
            ..Settings::default()
        };
        let options = CoreOptions {
            settings,
            tokens: vec![DriverToken {
                name: "fake".to_owned(),
                provider: Some(PROVIDER.to_owned()),
                file: self.directory.path().join("token"),
            }],
            clock: Arc::new(move || at(start)),
            ..CoreOptions::default()
        };
        let incoming = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
        let mut registry = Registry::default();
        let core = Core::start(self.client(), incoming, options, &mut registry)
            .await
            .expect("the core starts");
        self.core = Some(core);
    }

    /// Stops the core in an orderly way.
    pub async fn stop_core(&mut self) {
        if let Some(core) = self.core.take() {
            core.stop().await;
        }
    }

    /// Drops the core where it stands: no farewell to drivers, no release of the Lease.
    pub fn crash_core(&mut self) {
        self.core = None;
    }

    /// Starts the driver and its kubelets.
    pub fn start_driver(&mut self) {
        let end = CancellationToken::new();
        let doors = self.doors.clone();
        let connector = Connector::new(move || {
            let door = doors.lock().expect("nobody panicked").clone();
            async move {
                let channel = Endpoint::from_static("http://core")
                    .connect_with_connector(service_fn(move |_| {
                        let door = door.clone();
                        async move {
                            let (ours, theirs) = tokio::io::duplex(PIPE);
                            door.send(theirs).await.map_err(std::io::Error::other)?;
                            Ok::<_, std::io::Error>(TokioIo::new(ours))
                        }
                    }))
                    .await
                    .map_err(|_no_core| ConnectError::Timeout)?;
                Connection::new(channel).with_token(TOKEN)
            }
        });
        let driver = FakeDriver::new(self.cloud.clone());
        let kubelets = Kubelets::new(self.cloud.clone(), self.client());
        let (driver_end, kubelet_end) = (end.clone(), end.clone());
        let task = tokio::spawn(async move {
            let options = Options::new(connector).shutdown(driver_end);
            let (driver, kubelets) =
                tokio::join!(run_with(driver, options), kubelets.run(kubelet_end));
            driver.expect("the driver ends in an orderly way");
            kubelets.expect("the kubelets end in an orderly way");
        });
        self.driver = Some((end, task));
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

    /// Drops the driver where it stands; its cloud stays.
    pub fn crash_driver(&mut self) {
        if let Some((_, task)) = self.driver.take() {
            task.abort();
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
        let waited = tokio::time::timeout(day, await_condition(api.clone(), name, condition)).await;
        match waited {
            Ok(met) => {
                met.expect("machines can be watched");
            }
            Err(_) => {
                let machine = api.get_opt(name).await;
                panic!("{name} was never {what} within a day: {machine:#?}");
            }
        }
    }

    /// Everything ends in order.
    pub async fn stop(mut self) {
        self.stop_core().await;
        self.stop_driver().await;
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

fn epoch() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

fn at((base, since): (Timestamp, Instant)) -> Timestamp {
    base + since.elapsed()
}
