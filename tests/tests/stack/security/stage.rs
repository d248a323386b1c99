//! A core with real listeners, an embedded API, and drivers made of the flags that a deployed one has.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use ostler_api::machine::Machine;
use ostler_apiserver::serve::{ApiServer, Options as ApiOptions};
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_fake::{FakeDriver, PROVIDER};
use ostler_driver_sdk::{CancellationToken, Connector, DriverArgs, Options, run_with};
use ostler_server::{Core, CoreOptions, ListenAddress, Listeners, Settings};
use ostler_sessions::{ServerTls, TlsFiles};
use prometheus_client::registry::Registry;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

/// Longest wait for anything; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_mins(1);

/// A core and its surroundings. All run on the thread of the test, whose log lines are kept.
pub(crate) struct Stage {
    pub(crate) directory: TempDir,
    pub(crate) client: Client,
    pub(crate) core: Core,
    pub(crate) tls: Option<Arc<ServerTls>>,
    addresses: Vec<ListenAddress>,
    registry: Registry,
    logs: Logs,
    _logging: DefaultGuard,
}

impl Stage {
    /// A core that listens on loopback, with `tls` if given, and on a unix socket; `access` is the access file.
    pub(crate) async fn new(directory: TempDir, tls: Option<TlsFiles>, access: &str) -> Self {
        let (logs, logging) = Logs::start();
        let api = ApiServer::open(ApiOptions::memory()).await.unwrap();
        let client = Client::new(api.local_service(), "default");
        prepare(&client).await;
        let access_file = directory.path().join("access.yaml");
        std::fs::write(&access_file, access).unwrap();
        let tls = match tls {
            Some(files) => Some(ServerTls::load(files).await.unwrap()),
            None => None,
        };
        let socket = format!("unix:{}", directory.path().join("core.sock").display());
        let listen = ["127.0.0.1:0".parse().unwrap(), socket.parse().unwrap()];
        let listeners = Listeners::bind(&listen, tls).await.unwrap();
        let mut registry = Registry::default();
        listeners.register_metrics(&mut registry);
        let (addresses, tls) = (listeners.addresses(), listeners.tls().cloned());
        let settings = Settings { identity: "core".to_owned(), ..Settings::default() };
        let options =
            CoreOptions { settings, access_file: Some(access_file), ..CoreOptions::default() };
        let incoming = listeners.incoming();
        let mut core =
            Box::pin(Core::start(client.clone(), incoming, options, &mut registry)).await.unwrap();
        core.ready().await.unwrap();
        Self { directory, client, core, tls, addresses, registry, logs, _logging: logging }
    }

    /// A file in the directory of the stage.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn port(&self) -> u16 {
        match self.addresses.first() {
            Some(ListenAddress::Tcp(address)) => address.port(),
            Some(ListenAddress::Unix { .. }) | None => panic!("the first listens on TCP"),
        }
    }

    /// Flags of a driver that dials the TCP port by this scheme and host.
    pub(crate) fn tcp(&self, scheme_and_host: &str) -> DriverArgs {
        args(format!("{scheme_and_host}:{}", self.port()))
    }

    /// Flags of a driver that dials the unix socket.
    pub(crate) fn unix(&self) -> DriverArgs {
        args(format!("unix://{}", self.file("core.sock").display()))
    }

    /// Starts a driver; its log lines are kept as well.
    pub(crate) fn driver(&self, args: &DriverArgs) -> Driver {
        let logs = self.logs.clone();
        let end = CancellationToken::new();
        let options = Options::new(Connector::from_args(args).unwrap()).shutdown(end.clone());
        let cloud = Cloud::in_memory(Clock::new(Timestamp::now));
        let task = tokio::spawn(async move {
            run_with(FakeDriver::new(cloud), options).await.unwrap();
        });
        Driver { end, task, logs }
    }

    /// Waits until a driver serves that is known by this name.
    pub(crate) async fn serves(&self, principal: &str) {
        let serving = tokio::time::timeout(PATIENCE, self.core.driver_ready(principal)).await;
        assert!(serving.is_ok(), "{principal} does not serve: {}", self.logs.all());
    }

    /// Has a machine made, through class and secret.
    pub(crate) async fn make(&self, name: &str) {
        let api = Api::<Machine>::default_namespaced(self.client.clone());
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } }
        });
        api.create(&PostParams::default(), &serde_json::from_value(machine).unwrap())
            .await
            .unwrap();
        let made = |machine: Option<&Machine>| {
            machine.is_some_and(|machine| machine.spec.provider_id.is_some())
        };
        let wait = tokio::time::timeout(PATIENCE, await_condition(api, name, made)).await;
        assert!(wait.is_ok_and(|met| met.is_ok()), "{name} was not made: {}", self.logs.all());
    }

    /// Waits for a log line with all these parts, and returns it.
    pub(crate) async fn line(&self, parts: &[&str]) -> String {
        let line = tokio::time::timeout(PATIENCE, self.logs.line(parts)).await.ok();
        line.unwrap_or_else(|| panic!("no line with {parts:?} in:\n{}", self.logs.all()))
    }

    /// The content of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// A running driver.
pub(crate) struct Driver {
    end: CancellationToken,
    task: JoinHandle<()>,
    logs: Logs,
}

impl Driver {
    /// Ends it as SIGTERM does.
    pub(crate) async fn stop(self) {
        self.end.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        assert!(matches!(ended, Ok(Ok(()))), "the driver does not end: {}", self.logs.all());
    }
}

/// The arguments of a driver with nothing but an endpoint.
fn args(endpoint: String) -> DriverArgs {
    DriverArgs { endpoint, drain_timeout: Duration::from_secs(5), ..DriverArgs::default() }
}

async fn prepare(client: &Client) {
    let crds = Api::all(client.clone());
    for crd in ostler_api::crds() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    let secret = Secret {
        string_data: Some(BTreeMap::from([("userData".to_owned(), "#!/bin/sh".to_owned())])),
        metadata: kube::core::ObjectMeta { name: Some("c".to_owned()), ..Default::default() },
        ..Secret::default()
    };
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let example = ostler_tests::tools::root().join("deploy/examples/fake/class.yaml");
    let mut class: serde_json::Value =
        serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap();
    let fields = class.as_object_mut().unwrap();
    assert_eq!(fields.get("provider").unwrap(), PROVIDER);
    fields.insert("metadata".to_owned(), json!({ "name": "c" }));
    fields.insert("secretRef".to_owned(), json!({ "name": "c", "namespace": "default" }));
    let classes = Api::<ostler_api::MachineClass>::default_namespaced(client.clone());
    let class = serde_json::from_value(class).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
}

/// The log lines of this test.
#[derive(Clone, Default)]
struct Logs {
    bytes: Arc<Mutex<Vec<u8>>>,
    more: Arc<Notify>,
}

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut all = self.bytes.lock().map_err(|_| std::io::Error::other("a test panicked"))?;
        all.extend_from_slice(bytes);
        self.more.notify_one();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A second subscriber, which drops everything. With only one subscriber, tracing asks the subscriber of
/// the first thread at a call site for its interest; a test without a subscriber would switch the call site off for the
/// others.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

impl Logs {
    fn start() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let logs = Self::default();
        let writer = logs.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("info")
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (logs, tracing::subscriber::set_default(subscriber))
    }

    fn all(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    async fn line(&self, parts: &[&str]) -> String {
        loop {
            let all = self.all();
            let mut lines = all.lines();
            if let Some(line) = lines.find(|line| parts.iter().all(|part| line.contains(part))) {
                return line.to_owned();
            }
            self.more.notified().await;
        }
    }
}

/// `path` as the text of a flag or a YAML value.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
