//! Running a driver: as a process of its own, or inside another.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use clap::Parser;
use ostler_trace::TraceError;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::EnvFilter;

use crate::connect::{ConnectError, Connector};
use crate::driver::{Driver, DriverInfo};
use crate::error::chain;
use crate::handler::{Handler, Verbs};
use crate::options::{DriverArgs, Options};
use crate::session;

/// Why a driver cannot run at all.
#[derive(Debug, Error)]
pub enum RunError {
    /// The driver names a provider that no class can name.
    #[error(
        "provider {provider:?} must be a DNS subdomain of at most 63 characters, e.g. cloud.example.com"
    )]
    Provider {
        /// The name as given.
        provider: String,
    },
    /// The flags describe no connection.
    #[error("cannot connect")]
    Connect(#[from] ConnectError),
    /// Spans are wanted, and cannot be sent.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// The process cannot listen for signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// An Ostler driver: dials in to the core and does its operations
#[derive(Debug, Parser)]
#[command(name = "driver")]
struct Cli {
    #[command(flatten)]
    args: DriverArgs,
}

/// Runs `driver` as the whole process: flags, environment, logs, signals.
///
/// Ends with success after SIGTERM or SIGINT once everything that ran is finished and acknowledged,
/// or its time ([`DriverArgs::drain_timeout`]) is over, or a second signal came.
pub async fn run<D: Driver>(driver: D) -> ExitCode {
    run_with_args(driver, Cli::parse().args).await
}

/// As [`run`], with flags that were read already.
pub async fn run_with_args<D: Driver>(driver: D, args: DriverArgs) -> ExitCode {
    run_adjusted(driver, args, |options| options).await
}

/// As [`run_with_args`], with options that `adjust` makes of those of the flags.
pub async fn run_adjusted<D: Driver>(
    driver: D,
    args: DriverArgs,
    adjust: impl FnOnce(Options) -> Options,
) -> ExitCode {
    init_logs();
    match until_signalled(driver, &args, adjust).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %chain(&error), "the driver cannot run");
            ExitCode::FAILURE
        }
    }
}

/// Runs `driver` inside another program until [`Options::shutdown`] is cancelled and the drain is
/// over. Neither logs nor signals are set up.
pub async fn run_with<D: Driver>(driver: D, options: Options) -> Result<(), RunError> {
    run_handler(Verbs(driver), options).await
}

/// As [`run_with`], with what answers operations in place of a driver.
pub async fn run_handler<H: Handler>(handler: H, options: Options) -> Result<(), RunError> {
    let DriverInfo { provider, .. } = handler.info();
    if !is_provider(&provider) {
        return Err(RunError::Provider { provider });
    }
    session::serve(handler, options).await;
    Ok(())
}

async fn until_signalled<D: Driver>(
    driver: D,
    args: &DriverArgs,
    adjust: impl FnOnce(Options) -> Options,
) -> Result<(), RunError> {
    let traces = args.traces.start(&driver.info().provider)?;
    let options = adjust(options(args)?).traces(traces.clone());
    // In a task: what `main` waits for itself is on a thread of its own, which would be woken for every frame and every answer.
    let serving = AbortOnDropHandle::new(tokio::spawn(run_with(driver, options)));
    let served = serving.await;
    traces.finish().await;
    served.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime ends.
        Err(_) => Ok(()),
    })
}

/// What the flags say, with SIGTERM, SIGINT and the end of standard input as what ends the driver.
pub fn options(args: &DriverArgs) -> Result<Options, RunError> {
    let (shutdown, hurry) = (CancellationToken::new(), CancellationToken::new());
    cancel_on_signal(shutdown.clone(), hurry.clone()).map_err(RunError::Signals)?;
    if args.exit_on_stdin_eof {
        cancel_on_stdin_eof(shutdown.clone());
    }
    Ok(Options::new(Connector::from_args(args)?)
        .shutdown(shutdown)
        .hurry(hurry)
        .drain_timeout(args.drain_timeout)
        .instance_name(args.instance_name.clone().unwrap_or_else(host_name)))
}

/// The host name: in a pod, the pod's name. An unreadable name is empty.
fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Logs to stderr, filtered by `RUST_LOG`, `info` by default. A second call changes nothing.
pub fn init_logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Else the driver ends when stderr is closed: reporting that on stderr panics.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // Fails if the program has set up logs of its own, which are then used.
    let _already = logs.try_init();
}

/// The first signal drains, the second cuts the drain.
fn cancel_on_signal(shutdown: CancellationToken, hurry: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for token in [shutdown, hurry] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    });
    Ok(())
}

/// On a thread of its own: a read of the runtime's would keep the process from ending.
fn cancel_on_stdin_eof(shutdown: CancellationToken) {
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while std::io::stdin().read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        shutdown.cancel();
    });
}

/// Whether the core takes this for the name of a provider: a DNS subdomain of at most 63 characters.
pub fn is_provider(name: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_edge)
            && label.ends_with(is_edge)
            && label.chars().all(|c| is_edge(c) || c == '-')
    };
    name.len() <= 63 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::is_provider;

    #[test]
    fn a_provider_is_a_dns_subdomain_of_at_most_63_characters() {
        for good in ["fake.ostler.dev", "aws", "a-b.c1"] {
            assert!(is_provider(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "AWS", "a..b", ".a", "-a", "a-", "a_b", "a b", long.as_str()] {
            assert!(!is_provider(bad), "{bad}");
        }
    }
}
