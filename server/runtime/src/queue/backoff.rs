//! The delay after consecutive failures.

use std::time::Duration;

/// Exponential backoff of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl Default for Backoff {
    /// 20 ms, doubled up to 10 s: conflicts are retried almost immediately, and all keys are retried within 10 s
    /// after an API server comes back.
    fn default() -> Self {
        Self { base: Duration::from_millis(20), cap: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The delay after `failures` consecutive failures; zero failures, no delay.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
        self.base.checked_mul(factor).map_or(self.cap, |delay| delay.min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_from_the_base_up_to_the_cap() {
        let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(10) };
        let delays: Vec<u64> = (0..7).map(|n| backoff.delay(n).as_secs()).collect();
        assert_eq!(delays, [0, 1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.delay(u32::MAX), backoff.cap);
    }
}
