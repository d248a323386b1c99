//! The `ostler` command: machines, API and drivers on one computer, and tools.
//!
//! Each subcommand is a module with an `Args` and a `run`. Nothing here decides about machines: that is
//! the core's (`ostler-server`).

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ostler_controllers::EVENT_LOG;

mod backup;
mod class;
mod cluster;
mod crds;
mod dashboard;
mod data_dir;
mod describe;
mod driver;
mod driver_choice;
mod drivers;
mod groups;
mod kinds;
mod known;
mod live;
mod log;
mod manifests;
mod manual;
mod migrate;
mod output;
#[path = "../../proto/version.rs"]
mod program;
mod progress;
mod reset;
mod rollout;
mod sanity;
mod screen;
mod serving;
mod status;
mod table;
mod terminal;
mod up;
mod version;
mod waits;
mod watched;

/// Runs the life of Kubernetes machines.
///
/// `ostler up` starts everything on this computer: a Kubernetes API, the core, and a driver with a fake cloud.
/// Use plain kubectl with the kubeconfig that it writes.
#[derive(Debug, Parser)]
#[command(name = "ostler", version = program::VERSION.as_str(), max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start an API server, the core and drivers here, until Ctrl-C
    Up(up::Args),
    /// Delete all machines of a data directory through their drivers, then the directory
    Reset(reset::Args),
    /// Write all objects and keys of an `ostler up`, running or not, to a file
    Backup(backup::Args),
    /// Verify a backup, and restore it to a data directory
    Restore(backup::RestoreArgs),
    /// Run one of the built-in drivers
    #[command(subcommand)]
    Driver(driver::Args),
    /// List connected drivers, and run one operation by hand
    Drivers(drivers::Args),
    /// Show a whole cluster on one page: drivers, deployments, pools, reserves, and what waits for what
    Status(status::Args),
    /// Serve a page for a browser: timelines, waits, rollouts, drivers and orphans, live
    Dashboard(dashboard::Args),
    /// Show what a machine or a fleet is doing, what it waits for, and how it got there
    Describe(describe::Args),
    /// Follow, undo, pause, resume or restart the rollout of a machinedeployment or machinepool
    Rollout(rollout::Args),
    /// Check that a driver keeps the contract: the suite plays the core against it
    Sanity(Box<sanity::Args>),
    /// Ask a driver about a class: the name that it should have
    #[command(subcommand)]
    Class(class::Args),
    /// Check what machine-controller-manager left, before Ostler replaces it
    #[command(subcommand)]
    Migrate(migrate::Args),
    /// Print the CustomResourceDefinitions, for `kubectl apply -f -`
    Crds,
    /// Print the versions of this program, the core and its drivers
    Version(version::Args),
    /// Print completions for a shell
    Completion(manual::CompletionArgs),
    /// Write manual pages to a directory
    Man(manual::ManArgs),
}

/// The whole program: reads the command line, and runs one command to its end. Errors are printed with their causes,
/// one to a line.
///
/// It owns the runtime, since asynchronous code is compiled where it is polled: with this here, the binary compiles nothing.
pub fn main() -> ExitCode {
    let command = parse().command;
    let mut builder = if is_for_one_thread(&command) {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    match builder.enable_all().build() {
        Ok(runtime) => runtime.block_on(run(command)),
        Err(error) => code(Err(error.into())),
    }
}

/// The command line; started by kubectl its help speaks of `kubectl ostler`.
fn parse() -> Cli {
    let mut command = Cli::command();
    if cluster::is_plugin() {
        command = command.bin_name("kubectl ostler");
    }
    let parsed = Cli::from_arg_matches(&command.get_matches());
    parsed.unwrap_or_else(|error| error.exit())
}

/// An adapter passes frames on, and threads would wake each other for each; who stands above a driver waits.
fn is_for_one_thread(command: &Command) -> bool {
    #[cfg(target_os = "linux")]
    if matches!(command, Command::Driver(driver::Args::Keep(_))) {
        return true;
    }
    matches!(command, Command::Driver(driver::Args::Adapt(_)))
}

async fn run(command: Command) -> ExitCode {
    let result = match command {
        // `up` tells events itself.
        Command::Up(args) => match log::start(&format!("warn,{EVENT_LOG}=off"), &args.audit) {
            Ok(log) => {
                let outcome = Box::pin(up::run(args)).await;
                log.finish();
                outcome
            }
            Err(error) => Err(error),
        },
        Command::Reset(args) => {
            log::init("warn");
            Box::pin(reset::run(args)).await
        }
        Command::Backup(args) => {
            log::init("warn");
            Box::pin(backup::run(args)).await
        }
        Command::Restore(args) => {
            log::init("warn");
            Box::pin(backup::restore(args)).await
        }
        Command::Driver(args) => Box::pin(driver::run(args)).await,
        Command::Drivers(args) => {
            log::init("warn");
            Box::pin(drivers::run(args)).await
        }
        Command::Status(args) => {
            log::init(cluster::LOGGED);
            Box::pin(status::run(args)).await
        }
        Command::Dashboard(args) => {
            log::init(cluster::LOGGED);
            Box::pin(dashboard::run(args)).await
        }
        Command::Describe(args) => {
            log::init(cluster::LOGGED);
            Box::pin(describe::run(args)).await
        }
        Command::Rollout(args) => {
            log::init(cluster::LOGGED);
            Box::pin(rollout::run(args)).await
        }
        Command::Sanity(args) => return code(Box::pin(sanity::run_suite(*args)).await),
        Command::Migrate(args) => {
            log::init("error");
            return code(Box::pin(migrate::run(args)).await);
        }
        Command::Class(args) => Box::pin(class::run(args)).await,
        Command::Crds => crds::run(),
        Command::Version(args) => {
            log::init(cluster::LOGGED);
            Box::pin(version::run(args)).await
        }
        Command::Completion(args) => {
            manual::complete(Cli::command(), &args);
            Ok(())
        }
        Command::Man(args) => manual::pages(Cli::command(), &args),
    };
    code(result.map(|()| ExitCode::SUCCESS))
}

fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        log::error(&error);
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Examples are not broken, and of a paragraph, which clap breaks, the source breaks no line.
    fn assert_fits_80_columns(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<_> = help.lines().collect();
        for pair in lines.windows(2) {
            let goes_on = pair.iter().all(|line| !line.is_empty() && !line.starts_with(' '));
            assert!(!goes_on, "{}: {pair:#?}", command.get_name());
        }
        let long = lines.iter().find(|line| line.starts_with(' ') && line.chars().count() > 80);
        assert_eq!(long, None, "{}", command.get_name());
        command.get_subcommands().for_each(assert_fits_80_columns);
    }

    #[test]
    fn examples_and_notes_of_every_help_fit_80_columns() {
        assert_fits_80_columns(&Cli::command());
    }
}
