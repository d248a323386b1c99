//! Makes a driver of the core out of one that serves `MachineDriverService` on a unix socket.
//!
//! The adapter is the session layer of `ostler-driver-sdk` in a process of its own: it dials in,
//! registers with what GetInfo says, and turns each operation into one call. [`run`] is the command
//! `ostler driver adapt`; [`serve`] is the same without a process of its own and without a child.

mod adapter;
mod answer;
mod call;
mod channel;
mod child;
mod lists;
mod restarts;
mod socket;

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use ostler_driver_sdk::{CancellationToken, DriverArgs, Options, init_logs, options, run_handler};
use ostler_local::{Keeper, Record, SocketDirectory};
use ostler_proto::v1alpha1::GetInfoResponse;

use self::adapter::Adapter;
use self::child::Program;
pub use self::child::refuse_unexecutable;
pub use self::restarts::{Restart, Restarts, describe};
use self::socket::{Client, Lock, Socket};

/// Between two looks for a driver that does not answer. A driver that starts is found soon.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(2))
    .without_max_times();

/// Serve the core with a driver that listens on a unix socket
#[derive(Debug, clap::Args)]
pub struct AdaptArgs {
    #[command(flatten)]
    driver: DriverArgs,

    /// Where the driver listens; with a program after `--`, where it is told to listen (left out: in a new
    /// directory that only this user can enter)
    #[arg(long, env = "OSTLER_DRIVER_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Where that new directory is made
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    socket_parent: PathBuf,

    /// User id of the driver; left out: that of the adapter. Any other one that listens there is refused
    #[arg(long, env = "OSTLER_DRIVER_UID", value_name = "UID")]
    driver_uid: Option<u32>,

    /// The driver's program with its arguments, started and ended with the adapter; left out: it runs already
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the adapter as the whole process, until SIGTERM. `keeper` starts the program.
///
/// # Errors
/// What waiting does not fix: bad arguments, a driver that cannot be executed or ends right after each start, another
/// adapter, processes of an earlier one that do not end.
pub async fn run(args: AdaptArgs, keeper: Keeper) -> anyhow::Result<()> {
    init_logs();
    let traces = args.driver.traces.start("ostler-adapter")?;
    let adapted = adapt(args, keeper, |options| options.traces(traces.clone())).await;
    traces.finish().await;
    adapted
}

async fn adapt(
    args: AdaptArgs,
    keeper: Keeper,
    adjust: impl FnOnce(Options) -> Options,
) -> anyhow::Result<()> {
    let AdaptArgs { driver, socket, socket_parent, driver_uid, command } = args;
    let program = if command.is_empty() { None } else { Some(Program::new(command)?) };
    let (drain, options) = (driver.drain_timeout, adjust(options(&driver)?));
    let absolute = |path: PathBuf| {
        std::path::absolute(&path).with_context(|| format!("{} is no path", path.display()))
    };
    let Some(program) = program else {
        let socket =
            socket.context("pass --socket PATH of a driver that runs, or its program after --")?;
        return serve(absolute(socket)?, driver_uid, options).await;
    };
    let (path, trees) = if let Some(path) = socket {
        let path = absolute(path)?;
        let record = record(&path).await?;
        (path, Trees::Of(record))
    } else {
        let own = SocketDirectory::new(&socket_parent, false).await?;
        (own.socket(), Trees::In(own))
    };
    // What an operation left behind is then read by the next adapter's driver, with none at work beside it.
    let keeper = keeper.recorded(trees.record()).grace(drain).kill();
    let end = CancellationToken::new();
    let child = program.supervise(&keeper, &path, &end, drain);
    let session = async {
        let served = serve(path.clone(), driver_uid, options).await;
        // The driver ends after its session, which waits for running operations.
        end.cancel();
        served
    };
    tokio::try_join!(session, child).map(|_| ())
}

/// Where the processes of the driver are recorded.
enum Trees {
    In(SocketDirectory),
    Of(Record),
}

impl Trees {
    fn record(&self) -> &Record {
        let record = match self {
            Self::In(directory) => directory.record(),
            Self::Of(record) => record,
        };
        if record.ended() > 0 {
            tracing::warn!("{} processes that an earlier adapter left were ended", record.ended());
        }
        record
    }
}

/// Beside the socket, in a directory that the driver may want to make as well.
async fn record(socket: &Path) -> anyhow::Result<Record> {
    if let Some(directory) = socket.parent() {
        let _there_already = DirBuilder::new().mode(0o700).create(directory);
    }
    let mut path = socket.as_os_str().to_owned();
    path.push(".processes");
    Record::claim(Path::new(&path)).await
}

/// Serves the core with the driver on the socket `path`, whenever one answers there, until
/// [`Options::shutdown`] is cancelled. `uid`: the user that the driver runs as; `None`: this process's.
///
/// # Errors
/// Another adapter serves the drivers in this directory.
pub async fn serve(path: PathBuf, uid: Option<u32>, options: Options) -> anyhow::Result<()> {
    let socket = Socket::new(path, uid.unwrap_or_else(|| nix::unistd::geteuid().as_raw()));
    let shutdown = options.shutdown_token();
    let mut lock: Option<Lock> = None;
    while let Some((client, info)) = find(&socket, &mut lock, &shutdown).await? {
        let adapter = Adapter::new(client, info);
        // The probe comes before the registration, so that a driver that cannot work is never taken for ready.
        let _ = shutdown.run_until_cancelled(adapter.probe()).await;
        let session = shutdown.child_token();
        let watched = adapter.clone();
        let options = options.clone().shutdown(session.clone());
        tokio::select! {
            served = run_handler(adapter, options) => served?,
            () = async {
                watched.watch(&socket, &session).await;
                std::future::pending::<()>().await;
            } => {}
            () = watched.pass_events_on() => {}
        }
    }
    Ok(())
}

/// Waits for a driver to answer. `None`: the process is to end.
async fn find(
    socket: &Socket,
    lock: &mut Option<Lock>,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<(Client, GetInfoResponse)>> {
    let mut pauses = PAUSES.build();
    let mut said = String::new();
    while !shutdown.is_cancelled() {
        if lock.is_none() && socket.check().is_ok() {
            let Some(held) = shutdown.run_until_cancelled(socket.lock()).await else { break };
            *lock = Some(held?);
        }
        let why = match adapter::info(socket).await.and_then(usable) {
            Ok(found) if lock.is_some() => return Ok(Some(found)),
            // Its directory was made after the look above.
            Ok(_) => continue,
            Err(why) => format!("{why:#}"),
        };
        if why != said {
            tell(socket, &why);
            said = why;
        }
        let pause = pauses.next().unwrap_or(Duration::from_secs(2));
        // A pause that is cut short ends the loop.
        let _ = tokio::time::timeout(pause, shutdown.cancelled()).await;
    }
    Ok(None)
}

/// Says why no driver answers: only one that is there should.
fn tell(socket: &Socket, why: &str) {
    if socket.is_there() {
        tracing::warn!("{why}");
    } else {
        tracing::info!("waits for the driver: {why}");
    }
}

fn usable(found: (Client, GetInfoResponse)) -> anyhow::Result<(Client, GetInfoResponse)> {
    let GetInfoResponse { boot_id, provider, .. } = &found.1;
    ensure!(!provider.is_empty(), "GetInfo of the driver names no provider");
    ensure!(
        uuid::Uuid::try_parse(boot_id).is_ok(),
        "GetInfo of the driver says boot_id {boot_id:?}: it must be a UUID, new for every start"
    );
    Ok(found)
}
