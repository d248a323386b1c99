//! `ostler up`: an API server, the core and drivers on one computer.

mod core;
mod drivers;
mod gateway;
mod narrate;
mod ports;
mod stderr;
mod system;
mod undriven;
mod unserved;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ostler_controllers::{EnabledControllers, Namespaces};
use ostler_server::{AuditArgs, Signals, raise_descriptors};
use ostler_trace::TraceArgs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dashboard::{self, Dashboard, Source};
use crate::data_dir::DataDir;
use crate::driver_choice::DriverChoice;
use crate::drivers::AdminArgs;
use crate::live::{self, Scope};
use crate::manifests::{self, ManifestFile};
use crate::screen;

pub(crate) use drivers::DriverProcess;
pub(crate) use gateway::GatewayFile;
pub(crate) use narrate::Story;
pub(crate) use system::{CoreMode, Options, System, TargetMode};

/// Lines of the terminal that stay with the story.
const STORY_LINES: usize = 8;

/// What `ostler up` starts, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler up                                      the fake cloud, in ./.ostler
  ostler up --apply deploy/examples/fake         with three machines
  ostler up --driver docker --apply DIR          machines are containers here
  ostler up --driver none --core none            an API server only
  ostler up --driver aws.example.com=./my-driver a driver of your own
  ostler up --target none                        machines without Nodes
  ostler up --namespace '*'                      machines of all namespaces

In files of --apply, `<<API_SERVER>>` becomes the URL at which machines reach the API server, and \
`<<CA_DATA>>` the certificate of its authority (base64 of the PEM). With `--driver docker` the API server \
listens at the gateway of Docker's bridge as well, which is the address that containers have for this \
computer: with TLS, and only for clients with credentials. DOCKER_HOST says which engine it is, and \
OSTLER_DOCKER_ALLOW_HOST_PORTS=true and the like what classes may have of this computer beyond \
containers (`ostler driver docker --help`).

Then, in another terminal:
  export KUBECONFIG=$PWD/.ostler/kubeconfig
  kubectl get machines --watch

Deployments, DaemonSets, Jobs and their pods need Kubernetes' own programs beside it (with --node-grace 0 they alone look after silent Nodes):
  kube-scheduler --kubeconfig $KUBECONFIG &
  kube-controller-manager --kubeconfig $KUBECONFIG &
  kubectl create deployment web --image=nginx --replicas=30")]
pub(crate) struct Args {
    /// Where `up` keeps everything; started again with it, `up` continues where it stopped
    #[arg(long, value_name = "DIR", default_value = "./.ostler")]
    pub(crate) data_dir: PathBuf,
    /// Where kubectl finds the API server (HTTPS)
    ///
    /// With `--driver docker` it is the port at the gateway of Docker's bridge as well, in a new data directory. Later the port there
    /// stays: containers go on looking for it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:16440")]
    pub(crate) api_listen: SocketAddr,
    /// Where drivers that you start yourself dial in (gRPC, loopback only)
    ///
    /// Those that `up` starts dial in at the socket DIR/core.sock, which only this user can enter.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5000")]
    pub(crate) drivers_listen: SocketAddr,
    /// Where cluster-autoscaler dials in with --cloud-provider=externalgrpc (loopback only)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8086")]
    pub(crate) autoscaler_listen: SocketAddr,
    /// Where the core shows /metrics, /healthz and /readyz (HTTP, loopback only)
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Where the page of `ostler dashboard` is served (HTTP, loopback only); port 0: one that is free
    #[arg(long, value_name = "ADDR", default_value_t = dashboard::ANY_PORT)]
    pub(crate) dashboard_listen: SocketAddr,
    /// A driver to start: `fake`, `docker`, `none`, or an executable as [PROVIDER=]PATH; repeatable
    ///
    /// An executable serves PROVIDER only; without PROVIDER, the first provider that it claims after the start.
    #[arg(long = "driver", value_name = "DRIVER", default_value = "fake")]
    pub(crate) drivers: Vec<DriverChoice>,
    /// Pass one more variable of this environment to drivers, e.g. AWS_PROFILE; repeatable
    ///
    /// They get PATH, HOME, USER, TMPDIR, LANG, LC_*, TZ, RUST_LOG, RUST_BACKTRACE, DOCKER_*, XDG_RUNTIME_DIR, SSL_CERT_*,
    /// the variables of proxies, and OSTLER_* anyhow, and nothing else.
    #[arg(long, value_name = "NAME")]
    pub(crate) driver_env: Vec<String>,
    /// Another name that classes use for a provider, e.g. AWS=aws.example.com; repeatable
    #[arg(long = "provider-alias", value_name = "NAME=PROVIDER", value_parser = ostler_server::alias)]
    pub(crate) provider_aliases: Vec<(String, String)>,
    /// Apply a manifest or a directory of manifests once the API is up; repeatable
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) apply: Vec<PathBuf>,
    /// The namespaces whose machines are served: a name, a list a,b, a prefix with a star, or * for all
    #[arg(long, value_name = "NAMESPACE", default_value_t = Namespaces::one("default"))]
    pub(crate) namespace: Namespaces,
    /// Where the core runs: in this process, or `none` (start `ostler-server` yourself)
    #[arg(long, value_enum, default_value_t = CoreMode::Embedded)]
    pub(crate) core: CoreMode,
    /// Which cluster the machines join
    ///
    /// With `none` a driver can be tried without kubelets: a machine is Available once its instance is initialized.
    #[arg(long, value_enum, default_value_t = TargetMode::Own)]
    pub(crate) target: TargetMode,
    /// Controllers that the core runs, as for `ostler-server`: * for all, or some of machine, machinehealthcheck, machineset, machinedeployment
    #[arg(long, value_name = "NAME[,NAME]", default_value_t = EnabledControllers::default(), allow_hyphen_values = true)]
    pub(crate) controllers: EnabledControllers,
    /// How long a kubelet may be silent, in seconds, until its Node is not Ready and its pods are evicted; 0: for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = node_grace)]
    pub(crate) node_grace: u64,
    /// The audit log.
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
    /// Where spans go, also those of the drivers.
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
    /// Do not show a table of deployments, pools and machines at the bottom of the terminal
    #[arg(long)]
    pub(crate) no_live: bool,
}

impl Args {
    fn options(self, data: &DataDir) -> Options {
        Options {
            api_listen: self.api_listen,
            drivers_listen: self.drivers_listen,
            autoscaler_listen: Some(self.autoscaler_listen),
            metrics_listen: self.metrics_listen,
            drivers: self.drivers,
            driver_env: self.driver_env,
            aliases: self.provider_aliases.into_iter().collect(),
            shares: raise_descriptors(),
            core: self.core,
            namespaces: self.namespace,
            target: self.target,
            controllers: self.controllers,
            // Containers keep the URL from their creation, so the port stays the same.
            gateway_port: GatewayFile::of(data).last().map(|address| address.port()),
            node_grace: (self.node_grace > 0).then_some(Duration::from_secs(self.node_grace)),
            ends: false,
            traces: self.traces,
        }
    }
}

/// A Node is not said to be lost between two renewals.
fn node_grace(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if seconds == 0 || seconds >= 30 => Ok(seconds),
        Ok(_) | Err(_) => {
            Err("must be 0 (for ever) or at least 30: kubelets renew their Leases every 10 s"
                .into())
        }
    }
}

/// Runs until SIGINT, SIGTERM or SIGHUP, or until a part of it fails for good.
///
/// # Errors
/// Bad input, a port or a data directory in use, or a part that failed.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let manifests = read_manifests(&args.apply)?;
    let data = DataDir::open(&args.data_dir)?;
    crate::backup::refuse_half_restored(data.path())?;
    let story = Story::default();
    let browsers = dashboard::listen("--dashboard-listen", args.dashboard_listen).await?;
    let live = !args.no_live && screen::is_live();
    // Without a core here it is not known what others serve.
    let served = (args.core == CoreMode::Embedded).then(|| args.namespace.clone());
    let options = args.options(&data);
    let aliases = options.aliases.clone();
    let mut system = Box::pin(System::start(options, &data, story)).await?;
    story.tell(format_args!("kubectl --kubeconfig {} get machines", data.kubeconfig().display()));
    let gone = CancellationToken::new();
    let mut shown = JoinSet::new();
    let source = Source {
        client: system.client(),
        cluster: format!("ostler up in {}", data.path().display()),
        namespace: None,
        admin: AdminArgs::default(),
        home: Some(data.path().to_owned()),
    };
    let dashboard = Dashboard::new(browsers, source)?;
    story.tell(format_args!("a page for a browser: {}", dashboard.link()));
    shown.spawn(dashboard.serve(gone.clone()));
    if let Some(served) = served.clone() {
        story.tell(unserved::serving(&served));
        shown.spawn(unserved::follow(story, system.client(), served, gone.clone()));
    }
    if live {
        let scope = Scope { namespace: None, served, story_lines: STORY_LINES, clears: true };
        shown.spawn(live::follow(system.client(), scope, gone.clone()));
    }
    let outcome = tokio::select! {
        outcome = serve(&mut system, manifests, &aliases, story) => outcome,
        () = signals.end.cancelled() => Ok(()),
    };
    story.tell("stopping");
    gone.cancel();
    shown.join_all().await;
    system.stop(&signals.immediately, story).await;
    outcome
}

async fn serve(
    system: &mut System,
    files: Vec<ManifestFile>,
    aliases: &BTreeMap<String, String>,
    story: Story,
) -> anyhow::Result<()> {
    system.warm_up().await?;
    for mut file in files {
        system.fill(&mut file, story).await?;
        for manifest in file.manifests()? {
            story.tell(manifests::apply(&system.client(), manifest).await?);
        }
    }
    system.ready(story).await?;
    if let Some(connected) = system.providers() {
        undriven::tell(story, &system.client(), aliases, &connected).await?;
    }
    crate::log::say("ready: machines can be created");
    Err(system.failure().await)
}

fn read_manifests(paths: &[PathBuf]) -> anyhow::Result<Vec<ManifestFile>> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(manifests::read(path)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn containers_find_the_api_server_at_the_port_that_they_were_told_whatever_kubectl_uses() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let port = || {
            let line = ["up", "--driver", "docker", "--api-listen", "127.0.0.1:17000"];
            Cli::try_parse_from(line).unwrap().args.options(&data).gateway_port
        };
        assert_eq!(port(), None);
        crate::data_dir::write_private(&data.path().join("gateway"), "172.17.0.1:16440").unwrap();
        assert_eq!(port(), Some(16440));
    }
}
