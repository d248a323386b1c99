//! The core alone, against any Kubernetes API server.

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    ostler_server::command::run(ostler_server::command::Args::parse()).await
}
