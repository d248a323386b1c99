//! The wall clock, injected: everything that is stamped into an object or a token reads it here.

use std::sync::Arc;

/// Tells the time. Called for every stamp the server writes, so it must be cheap and must not block.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// The machine's own clock.
pub fn wall_clock() -> Clock {
    Arc::new(jiff::Timestamp::now)
}

/// A clock that stands at `start` and moves with tokio's clock, so that a test that pauses tokio's
/// time also governs what is stamped. Must be called inside a tokio runtime.
pub fn tokio_clock(start: jiff::Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Arc::new(move || start.checked_add(origin.elapsed()).unwrap_or(jiff::Timestamp::MAX))
}
