//! `ostler driver`: the built-in drivers, each the same library as its own binary.

use clap::Subcommand;

/// Which built-in driver to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// A cloud in memory with simulated kubelets and scripted faults
    Fake(ostler_driver_fake::FakeArgs),
    /// Machines out of containers on a Docker Engine
    Docker(ostler_driver_docker::DockerArgs),
}

/// Runs a driver until it is told to end.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::Fake(args) => ostler_driver_fake::run(args).await,
        Args::Docker(args) => ostler_driver_docker::run(args).await,
    }
}
