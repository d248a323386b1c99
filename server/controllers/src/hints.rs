//! What drivers say of instances by themselves: how often the core listens, and what it has not looked into yet.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::hint::{Hint, HintKind};
use ostler_lifecycle::hint::{HintUse, HintView};
use ostler_sessions::{Rate, TokenBucket};
use parking_lot::Mutex;
use tokio::time::Instant;

/// One hint of a machine in so much time on average.
const EVERY: Duration = Duration::from_secs(10);
/// So many in a row after a rest.
const BURST: u32 = 5;

/// What drivers said of each machine, by its UID, until the core has looked. Bounded by the machines that exist.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<HashMap<String, Heard>>);

#[derive(Debug)]
struct Heard {
    bucket: TokenBucket,
    /// For what says that the instance is gone: however often it changed before, that is heard.
    gone: TokenBucket,
    open: Option<HintView>,
}

impl Hints {
    /// Takes a hint in. `false`: there were too many for this machine lately.
    pub(crate) fn take(&self, uid: &str, hint: &Hint, clock: Timestamp, now: Instant) -> bool {
        let mut all = self.0.lock();
        let heard = all.entry(uid.to_owned()).or_insert_with(|| Heard {
            bucket: TokenBucket::new(Rate::every(EVERY, BURST)),
            gone: TokenBucket::new(Rate::every(EVERY, BURST)),
            open: None,
        });
        let is_gone = hint.kind == HintKind::Gone;
        let bucket = if is_gone { &mut heard.gone } else { &mut heard.bucket };
        let taken = bucket.take(now).is_ok();
        if taken {
            heard.open.get_or_insert_default().add(hint, clock);
        }
        taken
    }

    /// What was said of a machine that the core has not looked into yet.
    pub(crate) fn of(&self, uid: &str) -> Option<HintView> {
        self.0.lock().get(uid)?.open.clone()
    }

    /// A pass that saw `seen` did this about it. Another hint that came meanwhile stays.
    pub(crate) fn used(&self, uid: &str, seen: Option<&HintView>, how: HintUse) {
        let mut all = self.0.lock();
        let Some(heard) = all.get_mut(uid).filter(|heard| heard.open.as_ref() == seen) else {
            return;
        };
        heard.open = heard.open.take().and_then(|open| open.used(how));
    }

    /// The machine is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(kind: HintKind) -> Hint {
        Hint {
            kind,
            provider_id: "a:///1".into(),
            cluster_id: String::new(),
            machine_uid: "".into(),
            effective_in: None,
            message: String::new(),
        }
    }

    fn take(hints: &Hints, uid: &str, kind: HintKind, now: Instant) -> bool {
        hints.take(uid, &hint(kind), Timestamp::UNIX_EPOCH, now)
    }

    #[test]
    fn a_machine_is_looked_at_so_often_and_another_one_does_not_suffer_for_it() {
        let (hints, now) = (Hints::default(), Instant::now());
        for _ in 0..BURST {
            assert!(take(&hints, "a", HintKind::Changed, now));
        }
        assert!(!take(&hints, "a", HintKind::Changed, now));
        assert!(take(&hints, "b", HintKind::Changed, now));
        assert!(take(&hints, "a", HintKind::Changed, now + EVERY));
    }

    #[test]
    fn that_an_instance_is_gone_is_heard_however_often_it_changed_before_and_is_limited_too() {
        let (hints, now) = (Hints::default(), Instant::now());
        while take(&hints, "a", HintKind::Changed, now) {}
        for _ in 0..BURST {
            assert!(take(&hints, "a", HintKind::Gone, now));
        }
        assert!(!take(&hints, "a", HintKind::Gone, now));
    }

    #[test]
    fn a_hint_stays_until_a_read_that_was_sent_after_it_has_answered() {
        let (hints, now) = (Hints::default(), Instant::now());
        take(&hints, "a", HintKind::Changed, now);
        let seen = hints.of("a");
        hints.used("a", seen.as_ref(), HintUse::Asks);
        let asked = hints.of("a");
        assert!(asked.as_ref().is_some_and(|open| open.asked));
        take(&hints, "a", HintKind::Gone, now);
        hints.used("a", asked.as_ref(), HintUse::Done);
        let open = hints.of("a").unwrap();
        assert!(open.gone && !open.asked, "it came while the read was under way");
        hints.used("a", Some(&open), HintUse::Done);
        assert_eq!(hints.of("a"), None);
    }
}
