//! Time in which this process runs: not time in which it is stopped (Ctrl-Z, a snapshot of its VM), waits for a
//! processor of a loaded machine, or is looked at in a debugger.

use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How often the clock is looked at.
const TICK: Duration = Duration::from_secs(1);
/// A look that comes so late was kept from coming.
const NOTICED: Duration = Duration::from_secs(1);

/// For how long this process stood still, as far as that was noticed.
#[derive(Debug, Default)]
pub(super) struct Running {
    stood_still: Duration,
}

impl Running {
    /// For how long it stood still since [`Self::forget`].
    pub(super) const fn stood_still(&self) -> Duration {
        self.stood_still
    }

    /// Forgets runs from `before`.
    pub(super) fn forget(&mut self, before: Duration) {
        self.stood_still = self.stood_still.saturating_sub(before);
    }

    /// The result of `work`; `None` if `work` is not done after the process ran for `limit`.
    pub(super) async fn within<T>(
        &mut self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(work);
        let mut left = limit;
        loop {
            let (began, tick) = (Instant::now(), TICK.min(left));
            let done = timeout(tick, &mut work).await;
            let late = began.elapsed().saturating_sub(tick);
            if late >= NOTICED {
                self.stood_still += late;
            }
            if let Ok(done) = done {
                return Some(done);
            }
            left = left.saturating_sub(tick);
            if left.is_zero() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_stands_still_does_not_count() {
        let mut running = Running::default();
        let began = Instant::now();
        let stops = async {
            advance(Duration::from_secs(15)).await;
            pending::<()>().await;
        };
        assert_eq!(running.within(Duration::from_secs(10), stops).await, None);
        assert_eq!(running.stood_still(), Duration::from_secs(14));
        assert_eq!(began.elapsed(), Duration::from_secs(24));
    }
}
