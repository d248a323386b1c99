//! The docker driver as a binary of its own.

use clap::Parser;
use ostler_driver_docker::{Cli, start};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    start(Cli::parse()).await
}
