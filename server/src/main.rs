//! The core alone, against any Kubernetes API server.

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    let line = ostler_server::normal(std::env::args());
    ostler_server::command::run(ostler_server::command::Args::parse_from(line)).await
}
