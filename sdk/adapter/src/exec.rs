//! A program that ends with the process that started it.

use std::ffi::OsString;

use anyhow::Context as _;

/// A program, and with whom it ends.
#[cfg(target_os = "linux")]
#[derive(Debug, clap::Args)]
pub struct Exec {
    /// The process that started this one
    #[arg(long, value_name = "PID")]
    parent: i32,
    /// End it with SIGKILL, not with SIGTERM
    #[arg(long)]
    kill: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[cfg(target_os = "linux")]
impl Exec {
    /// Becomes the program.
    ///
    /// # Errors
    /// It cannot be executed, or the process that started this one has ended.
    pub fn run(self) -> anyhow::Result<()> {
        use std::os::unix::process::CommandExt as _;

        use nix::sys::prctl::set_pdeathsig;
        use nix::sys::signal::Signal;

        let signal = if self.kill { Signal::SIGKILL } else { Signal::SIGTERM };
        set_pdeathsig(Some(signal)).context("the end cannot be bound to the parent's")?;
        // It may have ended before that.
        anyhow::ensure!(nix::unistd::getppid().as_raw() == self.parent, "the parent has ended");
        let mut command = self.command.into_iter();
        let program = command.next().context("no program is named")?;
        let failed = std::process::Command::new(&program).args(command).exec();
        Err(failed).with_context(|| format!("{} cannot be executed", program.display()))
    }
}

/// The command that starts a program which is killed when this process ends: what an operation left behind is then
/// read by the next adapter's driver, with none at work beside it. `words`: where this executable has [`Exec`].
///
/// # Errors
/// The path of this executable is not known.
#[cfg(target_os = "linux")]
pub fn launcher(words: &[&str]) -> anyhow::Result<Vec<OsString>> {
    let this = std::env::current_exe().context("the path of this executable is not known")?;
    let parent = std::process::id().to_string();
    let options = ["--kill", "--parent", &parent, "--"];
    let words = words.iter().chain(&options).map(Into::into);
    Ok([this.into_os_string()].into_iter().chain(words).collect())
}

/// None: other systems cannot do it.
#[cfg(not(target_os = "linux"))]
pub fn launcher(_: &[&str]) -> anyhow::Result<Vec<OsString>> {
    Ok(Vec::new())
}
