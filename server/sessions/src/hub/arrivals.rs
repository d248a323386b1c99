//! How fast drivers may come: a storm of them must not keep the core from its work.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// What a principal may spend on streams: one in every `interval`, and `burst` of them in a row.
#[derive(Debug)]
pub(crate) struct Arrivals {
    interval: Duration,
    burst: u32,
    /// When each principal has everything back that it spent; gone once it has.
    spent_until: HashMap<String, Instant>,
}

/// Principals that are looked through for those that have everything back. Each costs some bytes.
const KEPT: usize = 1024;

impl Arrivals {
    /// No driver came yet.
    pub(crate) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: burst.max(1), spent_until: HashMap::new() }
    }

    /// A stream of this principal: fine, or how long it has to wait.
    pub(crate) fn enter(&mut self, now: Instant, principal: &str) -> Result<(), Duration> {
        let spent_until = self.spent_until.get(principal).copied().unwrap_or(now).max(now);
        let room = self.interval * (self.burst - 1);
        let wait = (spent_until - now).saturating_sub(room);
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.spent_until.len() >= KEPT {
            self.spent_until.retain(|_, until| *until > now);
        }
        self.spent_until.insert(principal.to_owned(), spent_until + self.interval);
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
    fn principals_that_have_everything_back_are_forgotten() {
        let mut arrivals = Arrivals::new(SECOND, 3);
        let now = Instant::now();
        for number in 0..KEPT {
            arrivals.enter(now, &number.to_string()).unwrap();
        }
        arrivals.enter(now + SECOND, "late").unwrap();
        assert_eq!(arrivals.spent_until.len(), 1);
    }
}
