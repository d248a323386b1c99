//! Being told to end.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// SIGHUP, in the mask of signals that a process ignores.
const HANG_UP: u64 = 1;

/// The requests made by signals.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    /// Cancelled at the first SIGINT, SIGTERM or SIGHUP: end in order.
    pub end: CancellationToken,
    /// Cancelled at the second one: wait for nothing.
    pub immediately: CancellationToken,
}

impl Signals {
    /// Handles signals from now on. A SIGHUP that the process was started to ignore (nohup) stays ignored.
    ///
    /// # Errors
    /// The signals cannot be handled.
    pub fn listen() -> anyhow::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
        let mut hang_up = if ignores_hang_up() {
            None
        } else {
            Some(signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?)
        };
        let signals = Self::default();
        let told = signals.clone();
        tokio::spawn(async move {
            for token in [told.end, told.immediately] {
                let hung_up = async {
                    match &mut hang_up {
                        Some(signal) => signal.recv().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hung_up => {}
                }
                token.cancel();
            }
        });
        Ok(signals)
    }
}

/// Cancelled at SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// As [`Signals::listen`].
pub fn on_signal() -> anyhow::Result<CancellationToken> {
    Ok(Signals::listen()?.end)
}

/// Where the kernel does not tell, none is ignored.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & HANG_UP != 0)
}
