//! The driver as a process.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use futures::future::BoxFuture;
use ostler_driver_sdk::{DriverArgs, run_adjusted};

use crate::driver::DockerDriver;
use crate::engine::{DockerHost, Engine};
use crate::outage::{OutageArgs, outage};
use crate::probe::{ProbeArgs, probe};
use crate::spec::{Permissions, ProviderSpec};

/// Flags of the docker driver.
#[derive(Debug, Clone, clap::Args)]
pub struct DockerArgs {
    /// Socket of the Docker Engine
    #[arg(long, env = "DOCKER_HOST", value_name = "URL", default_value_t = DockerHost::default())]
    pub docker_host: DockerHost,

    /// What of the host classes may have
    #[command(flatten)]
    pub permissions: Permissions,

    /// Print the JSON schema of providerSpec, and end
    #[arg(long)]
    pub print_schema: bool,

    /// Flags that every driver has
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// Makes machines out of containers on a Docker Engine.
#[derive(Debug, Parser)]
#[command(version = crate::version::VERSION.as_str(), args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    docker: DockerArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at what the driver made on an engine, which may be in use meanwhile
    Probe(ProbeArgs),
    /// Be a proxy before an engine that `probe break` takes away, for the conformance suite
    Outage(OutageArgs),
}

/// Does what the command line says.
pub fn start(cli: Cli) -> BoxFuture<'static, anyhow::Result<()>> {
    match cli.command {
        Some(Command::Probe(args)) => Box::pin(probe(args)),
        Some(Command::Outage(args)) => Box::pin(outage(args)),
        None => run(cli.docker),
    }
}

/// Runs the docker driver until it is told to end.
pub fn run(args: DockerArgs) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(drive(args))
}

async fn drive(args: DockerArgs) -> anyhow::Result<()> {
    if args.print_schema {
        return std::io::stdout().write_all(schema().as_bytes()).context("cannot print");
    }
    let engine = Engine::new(args.docker_host);
    let driver = DockerDriver::new(engine).allow(args.permissions);
    let watch = tokio::spawn(driver.clone().watch());
    let events = tokio::spawn(driver.clone().tell_events());
    let ended = run_adjusted(driver, args.driver, |options| {
        // At lower levels the client of the engine logs its requests, which contain credentials.
        log::set_max_level(log::LevelFilter::Info);
        options
    })
    .await;
    watch.abort();
    events.abort();
    if ended != ExitCode::SUCCESS {
        bail!("the driver ended with an error, which its log names");
    }
    Ok(())
}

/// The JSON schema of `providerSpec`, for people and editors.
fn schema() -> String {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(ProviderSpec));
    format!("{}\n", schema.unwrap_or_default())
}
