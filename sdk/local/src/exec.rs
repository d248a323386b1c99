//! A program that is killed with the process that started it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// A program, and with whom it ends.
#[derive(Debug, clap::Args)]
pub struct Exec {
    /// The process that started this one
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
    /// It cannot be executed, or the process that started this one has ended.
    pub fn run(self) -> anyhow::Result<()> {
        set_pdeathsig(Some(Signal::SIGKILL)).context("the end cannot be bound to the parent's")?;
        // It may have ended before that.
        anyhow::ensure!(nix::unistd::getppid().as_raw() == self.parent, "the parent has ended");
        let mut command = self.command.into_iter();
        let program = command.next().context("no program is named")?;
        let failed = std::process::Command::new(&program).args(command).exec();
        Err(failed).with_context(|| format!("{} cannot be executed", program.display()))
    }
}
