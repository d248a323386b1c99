//! How many things may happen in a second, and in a burst after a rest.

use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

/// A rate with a burst: so many a second on average, and so many in a row after a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Between two of them.
    interval: Duration,
    /// At least 1.
    burst: u32,
}

/// The text or the numbers are no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a rate: write operations a second between 0.001 and 1000000 and, if you like, \
     a burst of at least 1, e.g. 5 or 0.5:10"
)]
pub struct RateError(String);

impl Rate {
    /// `per_second` operations a second, at most `burst` in a row.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, RateError> {
        let sane = (0.001..=1e6).contains(&per_second) && burst >= 1;
        if !sane {
            return Err(RateError(format!("{per_second}:{burst}")));
        }
        Ok(Self { interval: Duration::from_secs_f64(per_second.recip()), burst })
    }

    /// One in `interval` on average, at most `burst` in a row.
    pub fn every(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: burst.max(1) }
    }
}

/// Keeps to a rate. The time comes in with each call.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: Rate,
    /// When all that was taken so far would have been taken without a burst.
    used: Option<Instant>,
}

impl TokenBucket {
    /// Nothing was taken yet.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, used: None }
    }

    /// When the next token is there; `None`: now.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let ahead = self.rate.interval.saturating_mul(self.rate.burst - 1);
        let at = self.used?.checked_sub(ahead).unwrap_or(now);
        (at > now).then_some(at)
    }

    /// Takes a token, ahead of its time if there is none. When its time is.
    pub fn reserve(&mut self, now: Instant) -> Instant {
        let at = self.next(now).unwrap_or(now);
        let from = self.used.map_or(now, |used| used.max(now));
        self.used = from.checked_add(self.rate.interval);
        at
    }

    /// Takes a token, or says when the next one is there.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        if let Some(at) = self.next(now) {
            return Err(at);
        }
        self.reserve(now);
        Ok(())
    }
}

/// `QPS[:BURST]`. The burst is that of one second, and at least 1, if it is left out.
impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = || RateError(text.to_owned());
        let (rate, burst) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        let per_second: f64 = rate.parse().map_err(|_| wrong())?;
        let interval = Self::new(per_second, 1).map_err(|_| wrong())?.interval;
        let burst = if let Some(burst) = burst {
            burst.parse().map_err(|_| wrong())?
        } else {
            let second = Duration::from_secs(1).as_nanos() / interval.as_nanos().max(1);
            u32::try_from(second).unwrap_or(u32::MAX).max(1)
        };
        Self::new(per_second, burst).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_as_operations_a_second_and_a_burst() {
        let cases = [("5", 200, 5), ("0.5", 2000, 1), ("0.5:10", 2000, 10), ("100:1", 10, 1)];
        for (text, millis, burst) in cases {
            let interval = Duration::from_millis(millis);
            assert_eq!(text.parse(), Ok(Rate { interval, burst }), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_named() {
        for text in ["", "x", "0", "-1", "NaN", "inf", "1:0", "1:x", "1:", "1e9"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(Rate::new(10.0, 2).unwrap());
        assert_eq!(bucket.take(start), Ok(()));
        assert_eq!(bucket.take(start), Ok(()));
        let next = bucket.take(start).unwrap_err();
        assert_eq!(next.duration_since(start).as_millis(), 100);
        assert_eq!(bucket.take(next), Ok(()));
        assert!(bucket.take(next).is_err());
    }
}
