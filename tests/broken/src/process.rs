//! Breakages of the process itself.

use super::Breakage;

/// Starts what a breakage does beside the driver.
pub(crate) fn start(breakage: Breakage) -> std::io::Result<()> {
    if breakage == Breakage::DrainDriver {
        exit_on_sigterm()?;
    }
    Ok(())
}

fn exit_on_sigterm() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        #[expect(clippy::exit, reason = "ending without a drain is the point")]
        std::process::exit(0);
    });
    Ok(())
}
