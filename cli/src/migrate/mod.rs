//! `ostler migrate`: from machine-controller-manager to Ostler.

mod ask;
mod check;
mod class;
mod cluster;
mod deployment;
mod drivers;
mod fleet;
mod report;
mod rights;
mod verdict;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do about a migration.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// Show what would become of every machine, class and flag, and what prevents the migration; changes nothing
    Check(Box<check::Args>),
}

/// Runs a subcommand.
///
/// # Errors
/// The cluster cannot be read, or drivers cannot be taken.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Check(args) => Box::pin(check::run(*args)).await,
    }
}
