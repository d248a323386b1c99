//! When the next operation of a provider may be sent: its rate, and the pause that follows when the
//! infrastructure throttles.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Rate, TokenBucket};

/// The reasons to hold back operations of a provider in spite of credit.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bucket: Option<TokenBucket>,
    /// Creates wait until then.
    paused_until: Option<Instant>,
}

impl Pace {
    /// At most `rate`, if there is one.
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Self { bucket: rate.map(TokenBucket::new), ..Self::default() }
    }

    /// When the next operation may be sent; `None`: now.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.bucket.as_ref()?.next(now)
    }

    /// An operation is sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        if let Some(bucket) = &mut self.bucket {
            bucket.reserve(now);
        }
    }

    /// The infrastructure throttles: no creates for `wait`. A pause is never made shorter.
    pub(crate) fn pause(&mut self, now: Instant, wait: Duration) {
        self.paused_until = self.paused_until.max(Some(now + wait));
    }

    /// Until when creates wait; `None`: they do not.
    pub(crate) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(Some("0.5:3".parse().unwrap()));
        let mut sent = Vec::new();
        let mut now = start;
        for _ in 0..5 {
            while let Some(next) = pace.next(now) {
                now = next;
            }
            pace.sent(now);
            sent.push((now - start).as_secs());
        }
        assert_eq!(sent, [0, 0, 0, 2, 4]);
        // A long rest earns the burst again, and no more.
        let rested = now + seconds(3600);
        for _ in 0..3 {
            assert_eq!(pace.next(rested), None);
            pace.sent(rested);
        }
        assert_eq!(pace.next(rested), Some(rested + seconds(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_waits() {
        let now = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..1000 {
            pace.sent(now);
        }
        assert_eq!(pace.next(now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_by_itself_and_is_never_made_shorter() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.pause(now, seconds(60));
        pace.pause(now, seconds(5));
        assert_eq!(pace.paused_until(now), Some(now + seconds(60)));
        assert_eq!(pace.paused_until(now + seconds(60)), None);
    }
}
