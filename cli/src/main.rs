//! The `ostler` command.

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    ostler::run(ostler::Cli::parse()).await
}
