//! `ostler driver`: the built-in drivers, each the same library as its own binary.

use clap::Subcommand;

/// Which built-in driver to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// A cloud in memory with simulated kubelets and scripted faults
    Fake(ostler_driver_fake::FakeArgs),
    /// Machines out of containers on a Docker Engine
    Docker(ostler_driver_docker::DockerArgs),
    /// A driver that serves MachineDriverService on a unix socket, in any language
    Adapt(ostler_adapter::AdaptArgs),
    /// Become another program, which the system ends with the process that started this one
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Exec(Exec),
}

/// A program, and with whom it ends.
#[cfg(target_os = "linux")]
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// The process that started this one
    #[arg(long, value_name = "PID")]
    parent: i32,
    /// End it with SIGKILL, not with SIGTERM
    #[arg(long)]
    kill: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

#[cfg(target_os = "linux")]
impl Exec {
    fn run(self) -> anyhow::Result<()> {
        use std::os::unix::process::CommandExt as _;

        use anyhow::Context as _;
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

/// Runs a driver until it is told to end.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::Fake(args) => ostler_driver_fake::run(args).await,
        Args::Docker(args) => ostler_driver_docker::run(args).await,
        Args::Adapt(args) => ostler_adapter::run(args, launcher()?).await,
        #[cfg(target_os = "linux")]
        Args::Exec(exec) => exec.run(),
    }
}

/// Starts a program that is killed when this process ends: what an operation left behind is then read by
/// the next adapter's driver, with none at work beside it.
#[cfg(target_os = "linux")]
fn launcher() -> anyhow::Result<Vec<std::ffi::OsString>> {
    use anyhow::Context as _;

    let this = std::env::current_exe().context("the path of this executable is not known")?;
    let parent = std::process::id().to_string();
    let words = ["driver", "exec", "--kill", "--parent", &parent, "--"].map(Into::into);
    Ok([this.into_os_string()].into_iter().chain(words).collect())
}

#[cfg(not(target_os = "linux"))]
fn launcher() -> anyhow::Result<Vec<std::ffi::OsString>> {
    Ok(Vec::new())
}

/// The command line that starts the driver of `command` behind an adapter, with its socket in `parent`.
pub(crate) fn adapted(command: &str, parent: &std::path::Path) -> anyhow::Result<String> {
    use anyhow::Context as _;

    let this = std::env::current_exe().context("the path of this executable is not known")?;
    let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let this = quote(&this.to_string_lossy());
    let (parent, command) = (quote(&parent.to_string_lossy()), quote(&format!("exec {command}")));
    Ok(format!("{this} driver adapt --socket-parent {parent} -- sh -c {command}"))
}
