//! The fake driver as its own binary has it, and with `--break` a rule broken.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use ostler_driver_broken::{Break, Breakage, Reads, listing, run_broken};
use ostler_driver_fake::{FakeArgs, ProbeArgs, probe, run};

/// Runs the fake driver with one rule of the contract broken.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Break one rule, to see the conformance check of this name fail; `help` lists them
    #[arg(long = "break", value_name = "CHECK")]
    breakage: Option<Break>,

    /// What GetMachineStatus can find
    #[arg(long, value_enum, default_value = "all")]
    reads: Reads,

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
    let Cli { command, breakage, reads, fake } = Cli::parse();
    // The default breakage of a driver with a limited GetMachineStatus.
    let untold = || (reads != Reads::All).then_some(Break::Rule(Breakage::StatusAbsent));
    let breakage = breakage.or_else(untold);
    match (command, breakage) {
        (Some(Command::Probe(args)), _) => probe(args),
        (None, Some(Break::Help)) => {
            std::io::stdout().write_all(listing().as_bytes()).context("cannot print")
        }
        (None, Some(Break::Rule(rule))) => run_broken(fake, rule, reads).await,
        (None, None) => run(fake).await,
    }
}
