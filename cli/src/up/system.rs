//! The parts of `up`, started in order: API server, core, drivers; stopped in the opposite one.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use ostler_apiserver::serving::{ApiServer, Options as ApiOptions};
use ostler_server::{AdminListener, Core, CoreOptions, DriverToken, ListenAddress, Settings, tcp};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::CoreMode;
use super::drivers::{DriverChoice, DriverProcess};
use super::gateway::{Gateway, GatewayFile, Reach};
use super::narrate::Story;
use crate::data_dir::{DataDir, write_private};
use crate::manifests::{API_SERVER, CA_DATA, ManifestFile};

/// A CRD is established in milliseconds; longer than this means that it never will be.
const CRD_PATIENCE: Duration = Duration::from_secs(30);
/// After this, a driver that has not connected is mentioned.
const DRIVER_PATIENCE: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) api_listen: SocketAddr,
    pub(crate) drivers_listen: SocketAddr,
    pub(crate) drivers: Vec<DriverChoice>,
    pub(crate) core: CoreMode,
    /// The port at the gateway of Docker's bridge, if it is not that of `api_listen`.
    pub(crate) gateway_port: Option<u16>,
}

/// Everything that runs.
pub(crate) struct System {
    api: ApiServer,
    reach: watch::Receiver<Reach>,
    client: Client,
    core: Option<Core>,
    drivers: Vec<DriverChoice>,
    tasks: JoinSet<anyhow::Result<()>>,
    end_drivers: CancellationToken,
    driver_tasks: JoinSet<()>,
    end_api: CancellationToken,
}

impl System {
    /// Starts the API server, then the core, then the drivers.
    pub(crate) async fn start(
        options: Options,
        data: &DataDir,
        story: Story,
    ) -> anyhow::Result<Self> {
        let docker = options.drivers.contains(&DriverChoice::Docker);
        if docker && options.api_listen.ip().is_unspecified() {
            bail!(
                "--api-listen {} takes every address, and with --driver docker the API server listens at the gateway of Docker's bridge as well; name one address, such as 127.0.0.1:16440",
                options.api_listen
            );
        }
        let api_listener = bind("--api-listen", options.api_listen).await?;
        let drivers: Vec<DriverChoice> =
            options.drivers.into_iter().filter(|driver| *driver != DriverChoice::None).collect();
        let drivers_listener = match options.core {
            CoreMode::Embedded => Some(bind("--drivers-listen", options.drivers_listen).await?),
            CoreMode::None => None,
        };
        data.remember_drivers(&drivers)?;

        let mut tasks = JoinSet::new();
        let end_api = CancellationToken::new();
        let address = api_listener.local_addr()?;
        let api = start_api(api_listener, data, &mut tasks, &end_api, story).await?;
        let (sender, reach) = watch::channel(Reach::At(format!("https://{address}")));
        if docker {
            sender.send_replace(Reach::NotYet("Docker has not answered yet".to_owned()));
            let port = options.gateway_port.unwrap_or_else(|| address.port());
            let gateway = Gateway::new(api.clone(), port, own_names(address), story)?;
            let (file, end) = (GatewayFile::of(data), end_api.clone());
            tasks.spawn(async move {
                gateway.follow(file, sender, end).await;
                Ok(())
            });
        }
        let client = Client::new(api.local_service(), "default");
        install_crds(&client).await?;
        tasks.spawn({
            let (client, end) = (client.clone(), end_api.clone());
            async move {
                story.follow_events(client, end).await;
                Ok(())
            }
        });

        let mut drivers_address = options.drivers_listen;
        let mut core = None;
        if let Some(listener) = drivers_listener {
            drivers_address = listener.local_addr()?;
            let options = core_options(data, &drivers)?;
            let mut registry = Registry::default();
            let started = Core::start(client.clone(), tcp(listener), options, &mut registry);
            let mut started = Box::pin(started).await?;
            story.tell(format_args!("the core takes drivers at {drivers_address}"));
            open_admin(&mut started, data, story).await;
            core = Some(started);
        }

        let end_drivers = CancellationToken::new();
        let mut driver_tasks = JoinSet::new();
        for driver in &drivers {
            let process = DriverProcess::new(driver, data, drivers_address)?;
            driver_tasks.spawn(process.supervise(story, end_drivers.clone()));
        }
        Ok(Self { api, reach, client, core, drivers, tasks, end_drivers, driver_tasks, end_api })
    }

    /// A client of the API server.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Fills in what a file of manifests leaves to be filled in. Waits until it is known.
    pub(crate) async fn fill(&self, file: &mut ManifestFile, story: Story) -> anyhow::Result<()> {
        file.fill(CA_DATA, &BASE64_STANDARD.encode(self.api.authority_pem()));
        if !file.names(API_SERVER) {
            return Ok(());
        }
        let mut reach = self.reach.clone();
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
            reach.changed().await.context("nobody looks for the address of the API server")?;
        }
    }

    /// Waits until machines can be created: the core leads, and every driver is connected.
    pub(crate) async fn ready(&mut self, story: Story) -> anyhow::Result<()> {
        let Some(core) = &mut self.core else { return Ok(()) };
        core.ready().await?;
        for driver in &self.drivers {
            let name = driver.name();
            let mut connected = Box::pin(core.driver_ready(&name));
            if timeout(DRIVER_PATIENCE, &mut connected).await.is_err() {
                story.tell(format_args!("waiting for driver {name} to connect"));
                connected.await;
            }
        }
        Ok(())
    }

    /// Returns when a part has failed for good.
    pub(crate) async fn failure(&mut self) -> anyhow::Result<()> {
        let core = async {
            match &mut self.core {
                Some(core) => core.failure().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = core => Err(error).context("the core stopped"),
            ended = self.tasks.join_next() => match ended {
                Some(Ok(Err(error))) => Err(error),
                Some(Err(panicked)) => Err(panicked).context("a part of `up` failed"),
                Some(Ok(Ok(()))) | None => Err(anyhow!("the API server stopped")),
            },
        }
    }

    /// Stops the drivers, then the core, then the API server, each within its own bound: a driver that
    /// hands in its last results while the core is there leaves nothing to be looked up later.
    pub(crate) async fn stop(mut self) {
        self.end_drivers.cancel();
        while self.driver_tasks.join_next().await.is_some() {}
        if let Some(core) = self.core.take() {
            core.stop().await;
        }
        self.end_api.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.api.close().await;
    }
}

async fn start_api(
    listener: TcpListener,
    data: &DataDir,
    tasks: &mut JoinSet<anyhow::Result<()>>,
    end: &CancellationToken,
    story: Story,
) -> anyhow::Result<ApiServer> {
    let address = listener.local_addr()?;
    let api = ApiServer::open(ApiOptions::directory(data.api()))
        .await
        .with_context(|| format!("the API server cannot use {}", data.api().display()))?;
    let mut names = own_names(address);
    // The certificate for the gateway is this one: it need not be made anew each time.
    names.extend(GatewayFile::of(data).last().map(|address| address.ip().to_string()));
    let tls = api.tls(&names).context("the API server has no certificate")?;
    write_private(&data.kubeconfig(), &api.kubeconfig(&tls, &format!("https://{address}")))?;
    story.tell(format_args!("the API server listens on https://{address}"));
    let (server, end) = (api.clone(), end.clone());
    tasks.spawn(async move {
        server.serve(listener, tls, end).await.context("the API server's listener failed")
    });
    Ok(api)
}

/// What the certificate must be good for.
fn own_names(address: SocketAddr) -> Vec<String> {
    if address.ip().is_unspecified() { vec![] } else { vec![address.ip().to_string()] }
}

/// Lets `ostler drivers` and grpcurl look into the core. Machines do not need it, so a path that is too long for a
/// socket is no reason to stop.
async fn open_admin(core: &mut Core, data: &DataDir, story: Story) {
    let address = ListenAddress::Unix { path: data.admin_socket(), mode: 0o600 };
    match AdminListener::bind(&address, None).await {
        Ok(listener) => {
            core.serve_admin(listener);
            story.tell(format_args!("ostler drivers --admin {address}"));
        }
        Err(error) => story.tell(format_args!("`ostler drivers` cannot be used: {error:#}")),
    }
}

fn core_options(data: &DataDir, drivers: &[DriverChoice]) -> anyhow::Result<CoreOptions> {
    let identity = data.core_identity()?;
    let mut tokens = Vec::new();
    for driver in drivers {
        tokens.push(DriverToken {
            name: driver.name(),
            providers: driver.provider().map(|provider| [provider.to_owned()].into()),
            file: data.driver_token(&driver.name())?,
        });
    }
    let settings = Settings {
        identity: identity.identity,
        predecessor: identity.predecessor,
        ..Settings::default()
    };
    Ok(CoreOptions { settings, tokens, ..CoreOptions::default() })
}

/// Creates our CRDs, or brings them up to date, and waits until they are served.
async fn install_crds(client: &Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in ostler_api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        if api.get_opt(&name).await?.is_some() {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&crd)).await
        } else {
            api.create(&PostParams::default(), &crd).await
        }
        .with_context(|| format!("CRD {name} was not accepted"))?;
        let established = await_condition(api.clone(), &name, is_crd_established());
        match timeout(CRD_PATIENCE, established).await {
            Ok(served) => {
                served.with_context(|| format!("CRD {name} cannot be watched"))?;
            }
            Err(_) => bail!("CRD {name} was accepted and is not served"),
        }
    }
    Ok(())
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    if flag == "--drivers-listen" && !address.ip().is_loopback() {
        bail!(
            "{flag} {address} is not a loopback address, and drivers speak plaintext here; use 127.0.0.1, or `ostler-server` with a certificate"
        );
    }
    let error = match TcpListener::bind(address).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if error.kind() == ErrorKind::AddrInUse {
        bail!(
            "{flag} {address} is taken by another process; end it, or choose another address with {flag}"
        );
    }
    if error.kind() == ErrorKind::AddrNotAvailable {
        bail!("{flag} {address} is not an address of this computer");
    }
    Err(error).with_context(|| format!("{flag} {address} cannot be listened on"))
}
