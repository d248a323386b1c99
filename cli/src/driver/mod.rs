//! `ostler driver`: the built-in drivers, each the same library as its own binary.

mod new;

use clap::Subcommand;
use ostler_local::Keeper;

/// Which built-in driver to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// A cloud in memory with simulated kubelets and scripted faults
    Fake(ostler_driver_fake::FakeArgs),
    /// Machines out of containers on a Docker Engine
    Docker(ostler_driver_docker::DockerArgs),
    /// A driver that serves MachineDriverService on a unix socket, in any language
    Adapt(ostler_adapter::AdaptArgs),
    /// Write a driver of your own, which passes the suite with a cloud in a file
    New(new::Args),
    /// Stand above a program and all that it starts
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Keep(ostler_local::Keep),
    /// Become another program, which the kernel kills when the parent process ends
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Exec(ostler_local::Exec),
}

/// Runs a driver until it is told to end.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::Fake(args) => ostler_driver_fake::run(args).await,
        Args::Docker(args) => ostler_driver_docker::run(args).await,
        Args::Adapt(args) => ostler_adapter::run(args, keeper()?).await,
        Args::New(args) => {
            crate::log::say(new::write(&args)?);
            Ok(())
        }
        #[cfg(target_os = "linux")]
        Args::Keep(keep) => keep.run(&["driver", "exec"]).await,
        #[cfg(target_os = "linux")]
        Args::Exec(exec) => exec.run(),
    }
}

/// Starts drivers, each with a process of this program above it.
///
/// # Errors
/// The path of this executable is not known.
pub(crate) fn keeper() -> anyhow::Result<Keeper> {
    Keeper::new(&["driver", "keep"])
}

/// The command line that starts the driver of `command` behind an adapter, with its socket in `parent`.
pub(crate) fn adapted(command: &str, parent: &std::path::Path) -> anyhow::Result<String> {
    let this = this_program()?;
    let (parent, command) = (quote(&parent.to_string_lossy()), quote(&format!("exec {command}")));
    Ok(format!("{this} driver adapt --socket-parent {parent} -- sh -c {command}"))
}

/// The command line of an adapter for a driver that runs; the path of its socket follows.
pub(crate) fn adapter() -> anyhow::Result<String> {
    Ok(format!("{} driver adapt --socket", this_program()?))
}

fn this_program() -> anyhow::Result<String> {
    use anyhow::Context as _;

    let this = std::env::current_exe().context("the path of this executable is not known")?;
    Ok(quote(&this.to_string_lossy()))
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
