//! The fake driver as a binary of its own.

#[path = "../../../proto/version.rs"]
mod version;

use clap::{Parser, Subcommand};
use ostler_driver_fake::{FakeArgs, ProbeArgs, probe, run};

/// Drives an in-memory cloud with simulated kubelets and scripted faults.
#[derive(Debug, Parser)]
#[command(version = version::VERSION.as_str(), args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    fake: FakeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look into the cloud of a state file, which drivers may be using meanwhile
    Probe(ProbeArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Cli { command, fake } = Cli::parse();
    match command {
        Some(Command::Probe(args)) => probe(args),
        None => run(fake).await,
    }
}
