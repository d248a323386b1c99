//! The time in which a list cannot be trusted: instances may still show up, or only seem to be gone.
//!
//! A legacy driver creates without looking, and its infrastructure lists a new instance a moment
//! later. So after a create of unknown outcome, and after the start of this core, whose predecessor
//! may have sent one, nothing is created for a while.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Targets that are remembered, each way. A driver works on one operation at a time, so more
/// targets in a minute are not to be expected; beyond the limit, forgetting is safe.
const TARGETS: usize = 4096;
/// How often in a row an absence may be forgotten: an absence without another question is not kept.
const ABSENCE_KEPT: u32 = 60;

/// The memory about targets of one provider, by UID.
#[derive(Debug)]
pub(crate) struct ConsistencyWindow {
    settle: Duration,
    born: Instant,
    /// When a create was last sent, failed or was lost.
    creates: HashMap<String, Instant>,
    /// When a target was first not listed.
    absent: HashMap<String, Instant>,
}

impl ConsistencyWindow {
    pub(crate) fn new(now: Instant, settle: Duration) -> Self {
        Self { settle, born: now, creates: HashMap::new(), absent: HashMap::new() }
    }

    /// Whether a create may be sent now, which is then noted; else how long it has to wait.
    pub(crate) fn may_create(&mut self, now: Instant, uid: &str) -> Result<(), Duration> {
        let settle = self.settle;
        self.creates.retain(|_, since| *since + settle > now);
        let since = self.creates.get(uid).copied().unwrap_or(self.born).max(self.born);
        let wait = (since + settle).saturating_duration_since(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.creates.len() >= TARGETS {
            return Err(settle);
        }
        self.unsettled(now, uid);
        Ok(())
    }

    /// A create may have had an effect until now.
    pub(crate) fn unsettled(&mut self, now: Instant, uid: &str) {
        self.creates.insert(uid.to_owned(), now);
    }

    /// The instance is known.
    pub(crate) fn seen(&mut self, uid: &str) {
        self.creates.remove(uid);
        self.absent.remove(uid);
    }

    /// The target is not listed: whether it is gone for sure, or when to look again.
    pub(crate) fn is_gone(&mut self, now: Instant, uid: &str) -> Result<(), Duration> {
        let kept = self.settle * ABSENCE_KEPT;
        self.absent.retain(|_, since| *since + kept > now);
        if self.absent.len() >= TARGETS && !self.absent.contains_key(uid) {
            // Only costs those another look.
            self.absent.clear();
        }
        let since = *self.absent.entry(uid.to_owned()).or_insert(now);
        let wait = (since + self.settle).saturating_duration_since(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.absent.remove(uid);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_mins(1);

    fn at(seconds: u64) -> (ConsistencyWindow, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let now = move |seconds| start + Duration::from_secs(seconds);
        (ConsistencyWindow::new(now(seconds), SETTLE), now)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_created_in_the_first_minute_because_a_predecessor_may_have() {
        let (mut window, now) = at(0);
        assert_eq!(window.may_create(now(20), "a"), Err(Duration::from_secs(40)));
        assert_eq!(window.may_create(now(60), "a"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_create_of_unknown_outcome_holds_up_the_next_one_of_its_target_alone() {
        let (mut window, now) = at(0);
        assert_eq!(window.may_create(now(100), "a"), Ok(()));
        assert_eq!(window.may_create(now(101), "a"), Err(Duration::from_secs(59)));
        window.unsettled(now(130), "a");
        assert_eq!(window.may_create(now(170), "a"), Err(Duration::from_secs(20)));
        assert_eq!(window.may_create(now(170), "b"), Ok(()));
        window.seen("b");
        assert_eq!(window.may_create(now(171), "b"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_is_gone_when_it_is_not_listed_twice_a_minute_apart() {
        let (mut window, now) = at(0);
        assert_eq!(window.is_gone(now(100), "a"), Err(SETTLE));
        assert_eq!(window.is_gone(now(130), "a"), Err(Duration::from_secs(30)));
        window.seen("a");
        assert_eq!(window.is_gone(now(160), "a"), Err(SETTLE));
        assert_eq!(window.is_gone(now(220), "a"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_the_bound_is_safe() {
        let (mut window, now) = at(0);
        for index in 0..TARGETS {
            let uid = index.to_string();
            assert_eq!(window.may_create(now(100), &uid), Ok(()));
            assert_eq!(window.is_gone(now(100), &uid), Err(SETTLE));
        }
        assert_eq!(window.may_create(now(100), "one more"), Err(SETTLE));
        assert_eq!(window.is_gone(now(170), "one more"), Err(SETTLE));
        assert_eq!(window.absent.len(), 1);
        assert_eq!(window.may_create(now(161), "one more"), Ok(()));
        assert_eq!(window.creates.len(), 1);
    }
}
