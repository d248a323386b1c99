//! The driver as a process: cloud, verbs and kubelets by command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Client;
use kube::config::Kubeconfig;
use ostler_dial::cluster;
use ostler_driver_sdk::{Cutter, DriverArgs, run_adjusted};
use tokio_util::sync::CancellationToken;

use crate::calls::CallLog;
use crate::cloud::{Clock, Cloud};
use crate::control::ControlFile;
use crate::driver::FakeDriver;
use crate::kubelet::Kubelets;

/// Flags of the fake driver.
#[derive(Debug, Clone, clap::Args)]
pub struct FakeArgs {
    /// File that keeps the instances; without it they end with the process
    #[arg(long, env = "OSTLER_FAKE_STATE_FILE", value_name = "FILE")]
    pub state_file: Option<PathBuf>,

    /// File to write every call of the core to, as JSON lines; of one driver only
    #[arg(long, env = "OSTLER_FAKE_CALL_LOG", value_name = "FILE")]
    pub call_log: Option<PathBuf>,

    /// JSON file with faults, read at every call; it need not exist yet
    #[arg(long, env = "OSTLER_FAKE_CONTROL_FILE", value_name = "FILE")]
    pub control_file: Option<PathBuf>,

    /// Kubeconfig of the cluster that the instances join; without it they never do
    #[arg(long, env = "OSTLER_FAKE_NODE_KUBECONFIG", value_name = "FILE")]
    pub node_kubeconfig: Option<PathBuf>,

    /// Put so many instances into the cloud that have not been there yet, e.g. to see long lists
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed_instances: usize,

    /// Cluster of the instances that are put there
    #[arg(long, value_name = "ID", default_value = "seed")]
    pub seed_cluster: String,

    /// Flags that every driver has
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// Runs the fake driver until it is told to end.
pub fn run(args: FakeArgs) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_served(args, async |driver, args, cutter| {
        run_adjusted(driver, args, |options| options.cutter(cutter)).await
    }))
}

/// As [`run`], with the driver served by `serve`, whose sessions the [`Cutter`] cuts.
pub async fn run_served(
    args: FakeArgs,
    serve: impl AsyncFnOnce(FakeDriver, DriverArgs, Cutter) -> ExitCode,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    let cloud = match &args.state_file {
        Some(path) => Cloud::open(path, clock.clone())?,
        None => Cloud::in_memory(clock.clone()),
    };
    cloud.seed(&args.seed_cluster, args.seed_instances)?;
    let mut driver = FakeDriver::new(cloud.clone());
    if let Some(path) = &args.call_log {
        let log = CallLog::open(path, clock)
            .with_context(|| format!("call log {} cannot be opened", path.display()))?;
        driver = driver.call_log(log);
    }
    if let Some(path) = &args.control_file {
        driver = driver.control_file(ControlFile::new(path));
    }
    let shutdown = CancellationToken::new();
    let kubelets = match &args.node_kubeconfig {
        Some(path) => {
            let mut kubelets = Kubelets::new(cloud, client(path).await?);
            if let Some(path) = &args.control_file {
                kubelets = kubelets.control_file(ControlFile::new(path));
            }
            Some(tokio::spawn(run_kubelets(kubelets, shutdown.clone())))
        }
        None => None,
    };
    let watch = tokio::spawn(driver.clone().watch());
    let cutter = Cutter::default();
    let ended = serve(driver.cutter(cutter.clone()), args.driver, cutter).await;
    watch.abort();
    shutdown.cancel();
    if let Some(kubelets) = kubelets {
        kubelets.await.context("the kubelets panicked")?;
    }
    if ended != ExitCode::SUCCESS {
        bail!("the driver ended with an error, which its log names");
    }
    Ok(())
}

async fn run_kubelets(kubelets: Kubelets, shutdown: CancellationToken) {
    if let Err(error) = kubelets.run(shutdown).await {
        let error = anyhow::Error::from(error);
        tracing::error!(error = format!("{error:#}"), "the kubelets ended, no node joins any more");
    }
}

async fn client(path: &Path) -> anyhow::Result<Client> {
    let named = || format!("node kubeconfig {} cannot be used", path.display());
    let kubeconfig = Kubeconfig::read_from(path).with_context(named)?;
    let mut config = cluster::config(kubeconfig).await.with_context(named)?;
    let agent = concat!("ostler-driver-fake/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    cluster::client(config).with_context(named)
}
