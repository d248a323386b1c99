//! The parts of `up`, started in order: API server, core, drivers; stopped in the opposite one.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::ValueEnum;
use futures::FutureExt as _;
use kube::Client;
use ostler_apiserver::serve::{
    ApiServer, OpenError, Options as ApiOptions, ServeOptions, TlsMaterial,
};
use ostler_apiserver::store::OpenError as StoreOpenError;
use ostler_controllers::{EnabledControllers, Namespaces};
use ostler_server::{
    Core, CoreOptions, DriverToken, ListenAddress, Settings, Shares, Signals, TargetCluster,
};
use ostler_sessions::OrphanReport;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::core::{Embedded, Parts};
use super::drivers::{DriverProcess, end_left, held_by};
use super::gateway::{Gateway, GatewayFile, Reach};
use super::narrate::Story;
use super::ports::{bind, for_drivers};
use crate::crds;
use crate::data_dir::{DataDir, write_private};
use crate::driver_choice::DriverChoice;
use crate::manifests::{API_SERVER, CA_DATA, ManifestFile};

/// After this, a driver that has not connected is mentioned.
const DRIVER_PATIENCE: Duration = Duration::from_secs(5);
/// How often instances are listed if everything is to be deleted, and how long one that has no machine is not deleted yet.
const LISTED_EVERY: Duration = Duration::from_secs(3);

/// Whether `up` runs the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CoreMode {
    /// In this process.
    Embedded,
    /// Not at all: an API server and drivers only.
    None,
}

/// Which cluster the machines join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetMode {
    /// The cluster of this API server
    #[default]
    Own,
    /// None: machines have no Nodes, and are Available as soon as their instances are initialized
    None,
}

impl TargetMode {
    const fn cluster(self) -> TargetCluster {
        match self {
            Self::Own => TargetCluster::Control,
            Self::None => TargetCluster::None,
        }
    }
}

/// What to start.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) api_listen: SocketAddr,
    pub(crate) drivers_listen: SocketAddr,
    /// Where autoscalers dial in; `None`: nowhere.
    pub(crate) autoscaler_listen: Option<SocketAddr>,
    /// Where metrics are shown; `None`: nowhere.
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) drivers: Vec<DriverChoice>,
    /// Further variables that drivers get.
    pub(crate) driver_env: Vec<String>,
    /// Other names that classes use for providers.
    pub(crate) aliases: BTreeMap<String, String>,
    pub(crate) core: CoreMode,
    /// The namespaces that the core serves.
    pub(crate) namespaces: Namespaces,
    pub(crate) target: TargetMode,
    /// The controllers that the core runs.
    pub(crate) controllers: EnabledControllers,
    /// How many connections each listener may have.
    pub(crate) shares: Shares,
    /// The port at the gateway of Docker's bridge, if it is not that of `api_listen`.
    pub(crate) gateway_port: Option<u16>,
    /// How long a kubelet may be silent until its Node is not Ready; `None`: for ever.
    pub(crate) node_grace: Option<Duration>,
    /// Everything is to be deleted: orphans are looked for all the time. No driver has operations of an earlier core.
    pub(crate) ends: bool,
    pub(crate) traces: ostler_trace::TraceArgs,
}

impl Options {
    /// What is wrong with an address whether it is free or not, and with the drivers together.
    fn refuse_bad_choices(&self) -> anyhow::Result<()> {
        let (api, drivers) = (self.api_listen, self.drivers_listen);
        if api.ip().is_unspecified() {
            bail!(
                "--api-listen {api} takes every address, and kubeconfig and certificate are for one; name it, such as 127.0.0.1:16440"
            );
        }
        if let Some(autoscaler) = self.autoscaler_listen.filter(|it| !it.ip().is_loopback()) {
            bail!(
                "--autoscaler-listen {autoscaler} is not a loopback address, and autoscalers speak plaintext here; use 127.0.0.1, or `ostler-server` with a certificate"
            );
        }
        let mut names = BTreeSet::new();
        let real = self.drivers.iter().filter(|it| **it != DriverChoice::None);
        if let Some(again) = real.map(DriverChoice::name).find(|name| !names.insert(name.clone())) {
            bail!(
                "two drivers are called {again}, and would share a token and a directory; give --driver PROVIDER=PATH"
            );
        }
        if self.core == CoreMode::Embedded && !drivers.ip().is_loopback() {
            bail!(
                "--drivers-listen {drivers} is not a loopback address, and drivers speak plaintext here; use 127.0.0.1, or `ostler-server` with a certificate"
            );
        }
        Ok(())
    }
}

/// After so long, `up` prints which operations keep it from ending.
const SILENCE: Duration = Duration::from_secs(1);
/// So many operations are told then.
const TOLD: usize = 5;

/// Everything that runs.
pub(crate) struct System {
    api: ApiServer,
    reach: watch::Receiver<Reach>,
    client: Client,
    core: Option<Embedded>,
    drivers: Vec<DriverChoice>,
    tasks: JoinSet<anyhow::Result<()>>,
    end_drivers: Signals,
    driver_tasks: JoinSet<()>,
    end_api: CancellationToken,
}

impl System {
    /// Starts the API server, then the core, then the drivers.
    pub(crate) async fn start(
        mut options: Options,
        data: &DataDir,
        story: Story,
    ) -> anyhow::Result<Self> {
        options.refuse_bad_choices()?;
        let docker = options.drivers.contains(&DriverChoice::Docker);
        let api_listener = bind("--api-listen", options.api_listen).await?;
        let mut drivers = std::mem::take(&mut options.drivers);
        drivers.retain(|driver| *driver != DriverChoice::None);
        let (listeners, endpoint) =
            for_drivers(options.core == CoreMode::Embedded, options.drivers_listen, data, story)
                .await?;
        let joins = options.target == TargetMode::Own;
        end_left_of_others(&drivers, data, story).await?;
        let mut processes = Vec::new();
        for it in &drivers {
            let env = (&*options.driver_env, &options.traces);
            processes.push(DriverProcess::new(it, data, &endpoint, joins, env, story).await?);
        }
        data.remember_drivers(&drivers)?;
        data.remember_aliases(&options.aliases)?;
        data.remember_driver_env(&options.driver_env)?;
        let shares = options.shares;

        let mut tasks = JoinSet::new();
        let end_api = CancellationToken::new();
        let address = api_listener.local_addr()?;
        let (api, tls) = open_api(address, data, options.node_grace, story).await?;
        let limits = ServeOptions { connections: shares.api };
        tasks.spawn(serve(api.clone(), api_listener, tls, limits, end_api.clone()));
        let (sender, reach) = watch::channel(Reach::At(format!("https://{address}")));
        if docker {
            sender.send_replace(Reach::NotYet("Docker has not answered yet".to_owned()));
            let port = options.gateway_port.unwrap_or_else(|| address.port());
            let limits = ServeOptions { connections: shares.gateway };
            let gateway = Gateway::new(api.clone(), address, port, limits, story)?;
            let (file, end) = (GatewayFile::of(data), end_api.clone());
            tasks.spawn(gateway.follow(file, sender, end).map(Ok));
        }
        let client = Client::new(api.local_service(), "default");
        crds::install(&client).await?;
        tasks.spawn(story.follow(client.clone(), end_api.clone()).map(Ok));

        let mut core = None;
        if let Some(listeners) = listeners {
            let parts = Parts {
                client: client.clone(),
                autoscaler: options.autoscaler_listen.map(ListenAddress::Tcp),
                metrics: options.metrics_listen,
                identity: data.core_identity(),
                listen: listeners.addresses(),
                admin: data.admin_socket(),
                people: shares.people,
                options: core_options(data, &drivers, options)?,
                story,
            };
            if let Some(port) = parts.listen.first() {
                story.tell(format_args!("the core takes drivers at {port}"));
            }
            core = Some(Embedded::start(parts, listeners).await?);
        }

        let end_drivers = Signals::default();
        let mut driver_tasks = JoinSet::new();
        for process in processes {
            driver_tasks.spawn(process.supervise(story, end_drivers.clone()));
        }
        Ok(Self { api, reach, client, core, drivers, tasks, end_drivers, driver_tasks, end_api })
    }

    /// A client of the API server.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The providers with a driver that is ready; `None`: no core here knows.
    pub(crate) fn providers(&self) -> Option<Vec<String>> {
        self.core.as_ref()?.core().map(Core::connected)
    }

    /// The core's report of orphans; empty without drivers.
    pub(crate) async fn orphans(&self) -> anyhow::Result<OrphanReport> {
        let Some(embedded) = self.core.as_ref().filter(|_| !self.drivers.is_empty()) else {
            return Ok(OrphanReport::default());
        };
        let core = embedded.core().context("orphans cannot be listed: the core starts again")?;
        let report = core.orphans().await;
        report.map_err(|refused| anyhow!("orphans cannot be listed: {refused:?}"))
    }

    /// Fills in what a file of manifests leaves to be filled in. Waits until it is known.
    pub(crate) async fn fill(
        &mut self,
        file: &mut ManifestFile,
        story: Story,
    ) -> anyhow::Result<()> {
        file.fill(CA_DATA, &BASE64_STANDARD.encode(self.api.authority_pem()));
        if !file.names(API_SERVER) {
            return Ok(());
        }
        let mut reach = self.reach.clone();
        self.unless_failed(async {
            loop {
                let now = reach.borrow_and_update().clone();
                match now {
                    Reach::At(url) => {
                        file.fill(API_SERVER, &url);
                        return Ok(());
                    }
                    Reach::NotYet(why) => story.tell(format_args!(
                        "--apply: {} waits for {API_SERVER}: {why}",
                        file.path().display()
                    )),
                }
                let changed = reach.changed().await;
                changed.context("the search for the address of the API server has ended")?;
            }
        })
        .await
    }

    /// Waits until machines can be created: the core leads, and every driver is connected.
    pub(crate) async fn ready(&mut self, story: Story) -> anyhow::Result<()> {
        loop {
            let Some(embedded) = &self.core else { return Ok(()) };
            let connected =
                |core: &Core, one: &DriverChoice| (one.clone(), core.driver_ready(&one.name()));
            let waits = embedded.core().map(|core| {
                let drivers: Vec<_> = self.drivers.iter().map(|one| connected(core, one)).collect();
                (core.leads(), drivers)
            });
            let work = async {
                let Some((leads, drivers)) = waits else { return pending().await };
                // The end of one before that is reported, and the next one is waited for.
                if leads.await.is_err() {
                    return pending().await;
                }
                for (driver, connected) in drivers {
                    until_connected(&driver, connected, story).await;
                }
            };
            tokio::select! {
                biased;
                ended = self.part_ended() => if let Some(error) = ended { return Err(error) },
                () = work => return Ok(()),
            }
        }
    }

    /// Waits until machines can be created, but not for ever: what is created before that says that its driver is not there.
    pub(crate) async fn warm_up(&mut self) -> anyhow::Result<()> {
        timeout(DRIVER_PATIENCE, self.ready(Story::quiet())).await.unwrap_or(Ok(()))
    }

    /// What `work` comes to, unless a part fails for good before: it may wait for just that part.
    async fn unless_failed(
        &mut self,
        work: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        tokio::select! {
            done = work => done,
            error = self.failure() => Err(error),
        }
    }

    /// Returns when a part has failed for good.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        loop {
            if let Some(error) = self.part_ended().await {
                return error;
            }
        }
    }

    /// Returns when a part has ended: why, or `None` if that was the core, and another one was started.
    async fn part_ended(&mut self) -> Option<anyhow::Error> {
        let api = &self.api;
        let core = async {
            match &mut self.core {
                Some(core) => core.outlive(|| api.trouble()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            // first: whatever else fails then fails for this
            biased;
            reason = api.failed() => {
                Some(anyhow!("the API server can store nothing any more: {reason}"))
            }
            ended = self.tasks.join_next() => Some(match ended {
                Some(Ok(Err(error))) => error,
                Some(Err(panicked)) => anyhow!(panicked).context("a part of `up` failed"),
                Some(Ok(Ok(()))) | None => anyhow!("the API server stopped"),
            }),
            () = core => None,
        }
    }

    /// Stops the drivers, then the core, then the API server, each within its own bound: last results of drivers still reach
    /// the core. `immediately` cuts that, as a crash would.
    pub(crate) async fn stop(mut self, immediately: &CancellationToken, story: Story) {
        self.end_drivers.end.cancel();
        tokio::select! {
            () = self.drivers_ended(story) => {}
            () = immediately.cancelled() => {
                crate::log::end_diagnostics();
                self.end_drivers.immediately.cancel();
                while self.driver_tasks.join_next().await.is_some() {}
                if let Some(core) = self.core.take() {
                    core.abandon().await;
                }
                return;
            }
        }
        let rest = async {
            if let Some(core) = self.core.take() {
                core.stop().await;
            }
            self.end_api.cancel();
            while self.tasks.join_next().await.is_some() {}
            self.api.close().await;
        };
        tokio::select! {
            () = rest => {}
            () = immediately.cancelled() => crate::log::end_diagnostics(),
        }
    }

    /// Returns when the drivers have ended. After a while, prints the operations that keep the drivers from ending.
    async fn drivers_ended(&mut self, story: Story) {
        let mut told = false;
        while !self.driver_tasks.is_empty() {
            tokio::select! {
                _ = self.driver_tasks.join_next() => {}
                () = sleep(SILENCE), if !told => {
                    told = true;
                    let core = self.core.as_ref().and_then(Embedded::core);
                    for it in core.map(|core| core.in_flight(TOLD)).unwrap_or_default() {
                        story.tell(held_by(&it));
                    }
                }
            }
        }
    }
}

/// Ends processes that an earlier `up` left of other drivers: such a process may serve the provider of a started driver.
async fn end_left_of_others(
    drivers: &[DriverChoice],
    data: &DataDir,
    story: Story,
) -> anyhow::Result<()> {
    for name in data.drivers_with_files()? {
        if drivers.iter().all(|driver| driver.name() != name) {
            drop(end_left(&name, &data.driver(&name)?, story).await?);
        }
    }
    Ok(())
}

async fn serve(
    api: ApiServer,
    listener: TcpListener,
    tls: TlsMaterial,
    limits: ServeOptions,
    end: CancellationToken,
) -> anyhow::Result<()> {
    let served = api.serve_with(listener, tls, limits, end).await;
    served.context("the API server's listener failed")
}

async fn until_connected(driver: &DriverChoice, connected: impl Future<Output = ()>, story: Story) {
    let mut connected = Box::pin(connected);
    if timeout(DRIVER_PATIENCE, &mut connected).await.is_err() {
        let name = driver.name();
        let of = driver.provider().map(|it| format!(" as {it}")).unwrap_or_default();
        story.tell(format_args!("waiting for driver {name} to connect{of}"));
        connected.await;
    }
}

async fn open_api(
    address: SocketAddr,
    data: &DataDir,
    node_grace: Option<Duration>,
    story: Story,
) -> anyhow::Result<(ApiServer, TlsMaterial)> {
    let api = ApiServer::open(ApiOptions { node_grace, ..ApiOptions::directory(data.api()) })
        .await
        .map_err(|error| unusable(error, data))?;
    let mut names = vec![address.ip().to_string()];
    // The certificate for the gateway is this one: it need not be made anew each time.
    names.extend(GatewayFile::of(data).last().map(|address| address.ip().to_string()));
    let tls = api.tls(&names).context("the API server has no certificate")?;
    write_private(&data.kubeconfig(), &api.kubeconfig(&tls, &format!("https://{address}")))?;
    story.tell(format_args!("the API server listens on https://{address}"));
    Ok((api, tls))
}

/// Why the API server cannot work in this directory, and what to do if its objects are damaged.
fn unusable(error: OpenError, data: &DataDir) -> anyhow::Error {
    let api = data.api();
    let damaged = matches!(error, OpenError::Store(StoreOpenError::Corrupt { .. }));
    let what = if damaged {
        format!(
            "the API server cannot use {}: its objects are damaged; `ostler restore FILE --data-dir {} --force` puts those of a backup in their place and moves these aside (docs/backup.md)",
            api.display(),
            data.path().display()
        )
    } else {
        format!("the API server cannot use {}", api.display())
    };
    anyhow::Error::new(error).context(what)
}

fn core_options(
    data: &DataDir,
    drivers: &[DriverChoice],
    options: Options,
) -> anyhow::Result<CoreOptions> {
    let mut tokens = Vec::new();
    for driver in drivers {
        tokens.push(DriverToken {
            name: driver.name(),
            providers: driver.provider().map(|provider| [provider.to_owned()].into()),
            file: data.driver_token(&driver.name())?,
        });
    }
    let aliases = options.aliases.into_iter();
    let mut core = CoreOptions {
        settings: Settings {
            controllers: options.controllers,
            namespaces: options.namespaces,
            aliases: aliases.map(|(alias, name)| (alias.into(), name.into())).collect(),
            ..Settings::default()
        },
        tokens,
        driver_connections: options.shares.drivers,
        target: options.target.cluster(),
        traces: options.traces.start("ostler-server")?,
        ..CoreOptions::default()
    };
    if options.ends {
        // No driver comes back with operations of an earlier core, and what has no machine goes immediately.
        core.adoption = Duration::ZERO;
        core.settings.orphans.period = LISTED_EVERY;
        core.settings.orphans.grace = LISTED_EVERY;
    }
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(api: &str, drivers: &str, driver: DriverChoice, core: CoreMode) -> Options {
        Options {
            api_listen: api.parse().unwrap(),
            drivers_listen: drivers.parse().unwrap(),
            autoscaler_listen: None,
            metrics_listen: None,
            drivers: vec![driver],
            driver_env: Vec::new(),
            aliases: BTreeMap::new(),
            core,
            namespaces: Namespaces::one("default"),
            target: TargetMode::Own,
            controllers: EnabledControllers::default(),
            shares: Shares { api: 1, gateway: 1, drivers: 1, people: 1 },
            gateway_port: None,
            node_grace: None,
            ends: false,
            traces: <_>::default(),
        }
    }

    #[tokio::test]
    async fn a_part_that_fails_ends_the_wait_for_drivers_and_for_an_address() {
        let (home, here) = (tempfile::tempdir().unwrap(), "127.0.0.1:0");
        let data = DataDir::open(home.path()).unwrap();
        let options = options(here, here, DriverChoice::None, CoreMode::Embedded);
        let mut system = Box::pin(System::start(options, &data, Story::quiet())).await.unwrap();
        // A driver that never connects.
        system.drivers = vec![DriverChoice::Fake];
        system.tasks.spawn(async { bail!("it broke") });
        let ready = timeout(crds::PATIENCE, system.ready(Story::quiet())).await.unwrap();
        assert_eq!(ready.unwrap_err().to_string(), "it broke");

        let (_search, reach) = watch::channel(Reach::NotYet("no answer".to_owned()));
        system.reach = reach;
        system.tasks.spawn(async { bail!("it broke again") });
        let path = home.path().join("class.yaml");
        std::fs::write(&path, format!("apiServer: {API_SERVER}")).unwrap();
        let mut file = crate::manifests::read(&path).unwrap().remove(0);
        let filled = timeout(crds::PATIENCE, system.fill(&mut file, Story::quiet())).await.unwrap();
        assert_eq!(filled.unwrap_err().to_string(), "it broke again");
        system.stop(&CancellationToken::new(), Story::quiet()).await;
    }

    #[test]
    fn addresses_are_refused_for_what_they_are() {
        let refused = |api: &str, drivers: &str, driver, core| {
            let options = options(api, drivers, driver, core);
            options.refuse_bad_choices().err().map(|error| error.to_string())
        };
        let (here, beyond) = ("127.0.0.1:0", "0.0.0.0:0");
        let said = refused(here, beyond, DriverChoice::Fake, CoreMode::Embedded).unwrap();
        assert!(said.starts_with("--drivers-listen 0.0.0.0:0 is not a loopback address"), "{said}");
        for api in [beyond, "[::]:0"] {
            let said = refused(api, here, DriverChoice::Fake, CoreMode::Embedded).unwrap();
            assert!(said.starts_with(&format!("--api-listen {api} takes every address")), "{said}");
        }
        // The API server has TLS, and without a core there is no listener for drivers.
        assert_eq!(refused("10.0.0.1:0", "[::1]:0", DriverChoice::Fake, CoreMode::Embedded), None);
        assert_eq!(refused(here, beyond, DriverChoice::Fake, CoreMode::None), None);
    }

    #[test]
    fn two_drivers_of_one_name_are_refused_since_they_would_share_a_token() {
        let at = |path: &str| DriverChoice::Path { provider: None, path: path.into() };
        let mut options = options("127.0.0.1:0", "127.0.0.1:0", at("/a/mine"), CoreMode::Embedded);
        options.drivers.extend([at("/b/yours"), DriverChoice::None, DriverChoice::None]);
        assert!(options.refuse_bad_choices().is_ok());
        options.drivers.push(at("/b/mine"));
        let said = options.refuse_bad_choices().unwrap_err().to_string();
        assert!(said.contains("mine") && said.contains("PROVIDER=PATH"), "{said}");
    }

    #[tokio::test]
    async fn a_driver_that_cannot_be_executed_is_not_remembered() {
        let (home, here) = (tempfile::tempdir().unwrap(), "127.0.0.1:0");
        let data = DataDir::open(home.path()).unwrap();
        let path = home.path().join("notes.txt");
        std::fs::write(&path, "no program").unwrap();
        let choice = DriverChoice::Path { provider: None, path };
        let options = options(here, here, choice, CoreMode::Embedded);
        let refused = Box::pin(System::start(options, &data, Story::quiet())).await;
        assert!(refused.is_err());
        assert_eq!(data.known_drivers().unwrap(), []);
    }

    #[test]
    fn the_core_binds_a_token_by_what_the_api_server_reads() {
        let written = ostler_api::names::annotation::TOKEN_NODE;
        assert_eq!(written, ostler_apiserver::auth::NODE_ANNOTATION);
    }
}
