//! How fast drivers may come: a storm of them must not keep the core from its work.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

/// A principal's budget for streams: one in every `interval`, and `burst` of them in a row.
#[derive(Debug)]
pub(crate) struct Arrivals {
    interval: Duration,
    burst: u32,
    /// When each principal has its whole burst back.
    spent_until: LruCache<String, Instant>,
}

/// Most principals remembered. A forgotten principal has its whole burst.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

impl Arrivals {
    /// No driver came yet.
    pub(crate) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: burst.max(1), spent_until: LruCache::new(KEPT) }
    }

    /// A stream of this principal: fine, or how long it has to wait.
    pub(crate) fn enter(&mut self, now: Instant, principal: &str) -> Result<(), Duration> {
        let spent_until = self.spent_until.get(principal).copied().unwrap_or(now).max(now);
        let room = self.interval * (self.burst - 1);
        let wait = (spent_until - now).saturating_sub(room);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.spent_until.put(principal.to_owned(), spent_until + self.interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_fine_and_then_one_in_every_interval() {
        let mut arrivals = Arrivals::new(SECOND, 3);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(arrivals.enter(now, "a"), Ok(()));
        }
        assert_eq!(arrivals.enter(now, "a"), Err(SECOND));
        assert_eq!(arrivals.enter(now, "b"), Ok(()), "others are not affected");
        assert_eq!(arrivals.enter(now + SECOND / 2, "a"), Err(SECOND / 2));
        assert_eq!(arrivals.enter(now + SECOND, "a"), Ok(()));
        assert_eq!(arrivals.enter(now + SECOND, "a"), Err(SECOND));
        assert_eq!(arrivals.enter(now + 9 * SECOND, "a"), Ok(()));
    }

    #[test]
    fn the_principals_that_came_last_are_remembered() {
        let mut arrivals = Arrivals::new(SECOND, 3);
        let now = Instant::now();
        for number in 0..=KEPT.get() {
            arrivals.enter(now, &number.to_string()).unwrap();
        }
        assert_eq!(arrivals.spent_until.len(), KEPT.get());
        assert!(!arrivals.spent_until.contains("0") && arrivals.spent_until.contains("1"));
    }
}
