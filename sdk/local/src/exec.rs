//! A program that is killed at the end of its parent.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// A program, and the process with which it ends.
#[derive(Debug, clap::Args)]
pub struct Exec {
    /// The parent process
    #[arg(long, value_name = "PID")]
    parent: i32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Exec {
    /// Becomes the program.
    ///
    /// # Errors
    /// The program cannot be executed, or the parent of this process has ended.
    pub fn run(self) -> anyhow::Result<()> {
        set_pdeathsig(Some(Signal::SIGKILL)).context("the end cannot be bound to the parent's")?;
        // The parent may have ended before the call.
        anyhow::ensure!(nix::unistd::getppid().as_raw() == self.parent, "the parent has ended");
        let mut command = self.command.into_iter();
        let program = command.next().context("no program is named")?;
        let failed = std::process::Command::new(&program).args(command).exec();
        Err(failed).with_context(|| format!("{} cannot be executed", program.display()))
    }
}
