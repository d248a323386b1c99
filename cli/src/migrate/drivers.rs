//! The drivers that the check asks: drivers that are started here, and drivers that dial in.

use ostler_api::ProviderName;
use ostler_api::driver::OperationKind;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use ostler_server::{
    DriverToken, ListenAddress, Look, LookOptions, Signals, TlsFiles, listen_for_drivers,
};
use ostler_sessions::{ProviderState, Sessions};
use ostler_trace::TraceArgs;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::data_dir::DataDir;
use crate::driver_choice::DriverChoice;
use crate::log;
use crate::up::{DriverProcess, Story};

/// Where drivers come from.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(super) struct DriverArgs {
    /// A driver to start and to end again: an executable that serves PROVIDER, or `docker`; repeatable
    #[arg(
        long = "driver",
        value_name = "PROVIDER=PATH",
        value_parser = started_here,
        required_unless_present = "listen",
        // Those speak no TLS to us.
        conflicts_with = "certificate"
    )]
    drivers: Vec<DriverChoice>,
    /// One more variable of this environment that started drivers get, e.g. AWS_PROFILE; repeatable
    #[arg(long, value_name = "NAME")]
    driver_env: Vec<String>,
    /// Wait here for drivers that dial in (gRPC): ADDR:PORT on loopback, with a certificate any, or unix:PATH; repeatable
    ///
    /// Point a driver that has no core yet at it, by OSTLER_ENDPOINT. A driver that serves a core stays there.
    #[arg(id = "listen", long = "drivers-listen", value_name = "ADDR:PORT|unix:PATH")]
    listen: Vec<ListenAddress>,
    /// Certificate (PEM, with its chain) to show to drivers that dial in
    #[arg(long = "drivers-tls-cert", value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(id = "key", long = "drivers-tls-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Which principal may serve which provider, as `ostler-server --driver-access`
    #[arg(long, value_name = "FILE")]
    driver_access: Option<PathBuf>,
    /// A provider, and the file with the token of its driver; repeatable
    #[arg(long = "driver-token", value_name = "PROVIDER=FILE")]
    driver_tokens: Vec<DriverToken>,
    /// How long drivers are waited for
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    wait: Duration,
}

fn started_here(text: &str) -> Result<DriverChoice, String> {
    match text.parse()? {
        DriverChoice::Fake => {
            Err("the fake cloud of a new process is empty: there is nothing to look at".to_owned())
        }
        DriverChoice::None => {
            Err("`none` is not possible here: the check needs a driver to ask".to_owned())
        }
        choice @ (DriverChoice::Docker | DriverChoice::Path { .. }) => Ok(choice),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = ostler_api::timeout::Timeout::from(text).duration();
    duration.ok_or_else(|| format!("`{text}` is not a duration such as 90s or 5m"))
}

/// Drivers that can be asked.
#[derive(Debug)]
pub(super) struct Drivers {
    look: Look,
    processes: JoinSet<()>,
    end: Signals,
    _directory: Directory,
}

/// The files of drivers that are started here; gone with the value.
#[derive(Debug)]
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // It may not have been made.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

impl Drivers {
    /// Starts and awaits drivers: until all are there that are wanted, or their time is up.
    ///
    /// # Errors
    /// An address cannot be listened on, or a file cannot be used.
    pub(super) async fn start(
        client: Client,
        args: DriverArgs,
        options: LookOptions,
        wanted: &BTreeSet<ProviderName>,
    ) -> anyhow::Result<Self> {
        let name = format!("ostler-migrate-{}", uuid::Uuid::new_v4());
        let directory = Directory(std::env::temp_dir().join(name));
        let data = DataDir::open(&directory.0).context("drivers need a directory of their own")?;
        let mut tokens = args.driver_tokens;
        for driver in &args.drivers {
            tokens.push(DriverToken {
                name: driver.name(),
                providers: driver.provider().map(|provider| [provider.to_owned()].into()),
                file: data.driver_token(&driver.name())?,
            });
        }
        let tls = args.certificate.zip(args.key);
        let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key, client_ca: None });
        let socket = ListenAddress::Unix { path: data.core_socket(), mode: 0o600 };
        let endpoint = socket.to_string();
        let own = (!args.drivers.is_empty()).then_some(socket);
        let addresses: Vec<ListenAddress> = own.into_iter().chain(args.listen.clone()).collect();
        let listeners = listen_for_drivers(&addresses, tls).await?;
        let options = LookOptions { tokens, access_file: args.driver_access, ..options };
        let look = Look::start(client, listeners, options).await?;

        let (mut processes, end) = (JoinSet::new(), Signals::default());
        for driver in &args.drivers {
            let process = DriverProcess::new(
                driver,
                &data,
                &endpoint,
                true,
                (&args.driver_env, &TraceArgs::default()),
                Story::quiet(),
            )
            .await?;
            processes.spawn(process.supervise(Story::quiet(), end.clone()));
        }
        let started: Vec<String> = args.drivers.iter().map(DriverChoice::name).collect();
        let dialing = !args.listen.is_empty();
        let enough = |sessions: &Sessions| are_there(sessions, &started, dialing, wanted);
        if timeout(args.wait, wait(look.sessions(), enough)).await.is_err() {
            log::note(format_args!(
                "note: not every driver is here after {:?}; with RUST_LOG=info this says who came and was sent away",
                args.wait
            ));
        }
        Ok(Self { look, processes, end, _directory: directory })
    }

    /// Where they are asked.
    pub(super) const fn sessions(&self) -> &Sessions {
        self.look.sessions()
    }

    /// The providers that can be asked about.
    pub(super) fn connected(&self) -> BTreeSet<ProviderName> {
        let providers = self.sessions().providers().into_iter();
        providers.filter(|it| it.ready).map(|it| it.provider).collect()
    }

    /// Providers whose driver changes no running instance.
    pub(super) fn without_updates(&self) -> BTreeSet<ProviderName> {
        let providers = self.sessions().providers().into_iter();
        let lacks = |it: &ProviderState| !it.kinds.contains(&OperationKind::UpdateMachine);
        providers.filter(|it| it.ready && lacks(it)).map(|it| it.provider).collect()
    }

    /// Ends what was started here, and lets the others go.
    ///
    /// # Errors
    /// Drivers could not be served to the end.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.end.end.cancel();
        while self.processes.join_next().await.is_some() {}
        self.look.stop().await
    }
}

/// Whether the wait for drivers is over: all that were started are ready and, where others dial in, all that classes
/// want.
fn are_there(
    sessions: &Sessions,
    started: &[String],
    dialing: bool,
    wanted: &BTreeSet<ProviderName>,
) -> bool {
    let mut ready = sessions.providers();
    ready.retain(|it| it.ready);
    let is_started = |name: &String| ready.iter().any(|it| it.principal == *name);
    let is_served = |provider: &ProviderName| ready.iter().any(|it| it.provider == *provider);
    started.iter().all(is_started) && (!dialing || wanted.iter().all(is_served))
}

async fn wait(sessions: &Sessions, enough: impl Fn(&Sessions) -> bool) {
    let mut events = sessions.subscribe();
    while !enough(sessions) {
        match events.recv().await {
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
