//! A token bucket: how often the queue may hand out keys, over all of them.

use std::time::Duration;

use tokio::time::Instant;

/// A rate over all keys of a queue; the last guard against a hot loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Keys handed out in a second, in the long run. Greater than zero.
    pub per_second: f64,
    /// Keys handed out at once after a quiet time. At least one.
    pub burst: u32,
}

#[derive(Debug)]
pub(super) struct TokenBucket {
    limit: RateLimit,
    tokens: f64,
    filled_at: Instant,
}

impl TokenBucket {
    pub(super) fn new(limit: RateLimit, now: Instant) -> Self {
        let limit =
            RateLimit { per_second: limit.per_second.max(0.001), burst: limit.burst.max(1) };
        Self { limit, tokens: f64::from(limit.burst), filled_at: now }
    }

    /// Takes a token, or says when the next one is there.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let elapsed = now.saturating_duration_since(self.filled_at);
        self.filled_at = now;
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.limit.per_second)
            .min(f64::from(self.limit.burst));
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A little more than needed, so that rounding never leaves 0.999… of a token.
        let missing = (1.0 - self.tokens) / self.limit.per_second;
        Err(now + Duration::from_secs_f64(missing) + Duration::from_micros(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(RateLimit { per_second: 10.0, burst: 2 }, start);
        assert_eq!(bucket.take(start), Ok(()));
        assert_eq!(bucket.take(start), Ok(()));
        let next = bucket.take(start).unwrap_err();
        assert_eq!(next.duration_since(start).as_millis(), 100);
        assert_eq!(bucket.take(next), Ok(()));
        assert!(bucket.take(next).is_err());
    }
}
