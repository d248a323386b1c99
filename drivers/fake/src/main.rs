//! The fake driver as a binary of its own.

use clap::Parser;
use ostler_driver_fake::{FakeArgs, run};

/// Drives an in-memory cloud with simulated kubelets and scripted faults.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    fake: FakeArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(Cli::parse().fake).await
}
