//! The adapter as a binary of its own, for a small image.

#[path = "../../../proto/version.rs"]
mod version;

use clap::{Parser, Subcommand};
use ostler_adapter::{AdaptArgs, run};
use ostler_local::Keeper;

/// Threads free memory that other threads allocated; the allocator of the C library takes a lock for each such free.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serves the core with a driver that listens on a unix socket
#[derive(Debug, Parser)]
#[command(version = version::VERSION.as_str(), args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    adapt: AdaptArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stand above a program and all that it starts
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Keep(ostler_local::Keep),
    /// Become another program, which the kernel kills when the parent process ends
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Exec(ostler_local::Exec),
}

/// One thread: what the adapter does is to pass frames on, and threads would wake each other for each.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let Cli { command, adapt } = Cli::parse();
    match command {
        #[cfg(target_os = "linux")]
        Some(Command::Keep(keep)) => keep.run(&["exec"]).await,
        #[cfg(target_os = "linux")]
        Some(Command::Exec(exec)) => exec.run(),
        #[cfg(not(target_os = "linux"))]
        Some(_) => Ok(()),
        None => run(adapt, Keeper::new(&["keep"])?).await,
    }
}
