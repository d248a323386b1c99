//! The driver as a child process: started, started again when it ends, and ended with the adapter.

use std::ffi::OsString;
use std::path::{Display, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::unistd::{AccessFlags, access};
use ostler_driver_sdk::CancellationToken;
use ostler_local::{Keeper, Tree};
use tokio::time::Instant;

use crate::restarts::{Restart, Restarts, describe};

/// The driver program, and the way to start it.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    args: Vec<OsString>,
}

/// Whether a program can be executed, so that nothing tries for ever to start one that cannot.
///
/// # Errors
/// There is no such file, or it is not executable.
pub fn refuse_unexecutable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    ensure!(path.is_file(), "the driver {shown} is no file");
    access(path, AccessFlags::X_OK)
        .with_context(|| format!("the driver {shown} cannot be executed: run `chmod +x {shown}`"))
}

impl Program {
    /// The first word of `command` is the program. One that cannot be executed is refused: to try again
    /// would not help.
    pub(crate) fn new(command: Vec<OsString>) -> anyhow::Result<Self> {
        let mut words = command.into_iter();
        let named = words.next().context("no program is named after --")?;
        let path = resolve(Path::new(&named))?;
        refuse_unexecutable(&path)?;
        Ok(Self { path, args: words.collect() })
    }

    /// Keeps the driver running until `end`, and then ends it within `drain`, each time with all that it started.
    ///
    /// # Errors
    /// It ends right after each start: who started the adapter is told, and decides whether to try again.
    pub(crate) async fn supervise(
        &self,
        keeper: &Keeper,
        socket: &Path,
        end: &CancellationToken,
        drain: Duration,
    ) -> anyhow::Result<()> {
        let mut restarts = Restarts::default();
        loop {
            let started = Instant::now();
            let tree = self.start(keeper, socket)?;
            tracing::info!(process = tree.process().await, "driver {} started", self.shown());
            let Some(status) = end.run_until_cancelled(tree.wait()).await else {
                stop(&tree, drain).await;
                return Ok(());
            };
            let next = restarts.after(started.elapsed(), status.as_ref().ok().copied());
            let (shown, status) = (self.shown(), describe(status));
            if let Restart { never_ran: Some(count), .. } = next {
                bail!(
                    "driver {shown} ended right after each of {count} starts, the last time with {status}; \
                     what it wrote stands above"
                );
            }
            tracing::error!("driver {shown} ended: {status}; it starts again in {:?}", next.pause);
            if tokio::time::timeout(next.pause, end.cancelled()).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// The path alone: arguments may hold secrets.
    fn shown(&self) -> Display<'_> {
        self.path.display()
    }

    fn start(&self, keeper: &Keeper, socket: &Path) -> anyhow::Result<Tree> {
        let own = std::env::vars_os().filter(|(name, _)| {
            // They say where the core is and who the adapter is: nothing for the driver.
            !name.to_string_lossy().starts_with("OSTLER_")
        });
        let mut command = keeper.command(&self.path);
        command.args(&self.args).env_clear().envs(own).env("OSTLER_DRIVER_SOCKET", socket);
        keeper.start(command).with_context(|| format!("{} cannot be executed", self.path.display()))
    }
}

/// A name without a slash is looked for in PATH, as a shell does.
fn resolve(named: &Path) -> anyhow::Result<PathBuf> {
    if named.components().count() > 1 || named.is_absolute() {
        return Ok(named.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join(named)).find(|it| it.is_file());
    let Some(found) = found else { bail!("no program {} is in PATH", named.display()) };
    Ok(found)
}

async fn stop(tree: &Tree, drain: Duration) {
    if !tree.stop(drain).await {
        tracing::error!("processes of the driver do not end, even after SIGKILL");
    }
}
