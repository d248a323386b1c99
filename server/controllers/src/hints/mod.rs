//! Drivers' own reports on instances: the limit of their rate, and the reports not looked into yet.

mod heard;

pub(crate) use heard::Listener;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::hint::{Hint, HintKind};
use ostler_lifecycle::hint::{HintUse, HintView};
use ostler_sessions::{Rate, TokenBucket};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stores::MachineIndex;
use crate::watch::Cache;

/// The average time between hints of one machine.
const EVERY: Duration = Duration::from_secs(10);
/// So many in a row after a rest.
const BURST: u32 = 5;

/// Drivers' reports on each machine, by its UID, until the core has looked. Bounded by the machines that exist.
#[derive(Debug)]
pub(crate) struct Hints {
    heard: Mutex<HashMap<String, Heard>>,
    machines: Arc<Cache<MachineIndex>>,
}

#[derive(Debug)]
struct Heard {
    bucket: TokenBucket,
    /// For reports of a gone instance: earlier changes, however frequent, do not block such a report.
    gone: TokenBucket,
    open: Option<HintView>,
}

impl Hints {
    /// Hints about the given machines.
    pub(crate) fn of_machines(machines: &Arc<Cache<MachineIndex>>) -> Self {
        Self { heard: Mutex::default(), machines: Arc::clone(machines) }
    }

    /// Takes a hint in. `false`: there were too many for this machine lately, or it is gone.
    pub(crate) fn take(&self, uid: &str, hint: &Hint, clock: Timestamp, now: Instant) -> bool {
        let mut all = self.heard.lock();
        let Some(heard) = self.of_machine(&mut all, uid) else { return false };
        let is_gone = hint.kind == HintKind::Gone;
        let bucket = if is_gone { &mut heard.gone } else { &mut heard.bucket };
        let taken = bucket.take(now).is_ok();
        if taken {
            heard.open.get_or_insert_default().add(hint, clock);
        }
        taken
    }

    /// The report on a machine that the core has not looked into yet.
    pub(crate) fn of(&self, uid: &str) -> Option<HintView> {
        self.heard.lock().get(uid)?.open.clone()
    }

    /// Records the use of the hint `seen` by a pass. Another hint that came meanwhile stays.
    pub(crate) fn used(&self, uid: &str, seen: Option<&HintView>, how: HintUse) {
        let mut all = self.heard.lock();
        let heard = self.of_machine(&mut all, uid);
        if let Some(heard) = heard.filter(|heard| heard.open.as_ref() == seen) {
            heard.open = HintView::used(heard.open.take(), how);
        }
    }

    /// The memory about a machine; `None`: the machine is gone.
    fn of_machine<'a>(
        &self,
        all: &'a mut HashMap<String, Heard>,
        uid: &str,
    ) -> Option<&'a mut Heard> {
        // Looked at under the lock: if it goes now, `forget` comes after this.
        (self.machines.count(MachineIndex::Uid, uid) > 0).then(|| {
            all.entry(uid.to_owned()).or_insert_with(|| Heard {
                bucket: TokenBucket::new(Rate::every(EVERY, BURST)),
                gone: TokenBucket::new(Rate::every(EVERY, BURST)),
                open: None,
            })
        })
    }

    /// The machine is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.heard.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::bench::put;

    /// Of machines with these UIDs.
    fn of(uids: &[&str]) -> Hints {
        let cache = Arc::new(Cache::default());
        for uid in uids {
            put(&cache, json!({ "metadata": { "name": uid, "uid": uid }, "spec": {} }));
        }
        Hints::of_machines(&cache)
    }

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
        let (hints, now) = (of(&["a", "b"]), Instant::now());
        for _ in 0..BURST {
            assert!(take(&hints, "a", HintKind::Changed, now));
        }
        assert!(!take(&hints, "a", HintKind::Changed, now));
        assert!(take(&hints, "b", HintKind::Changed, now));
        assert!(take(&hints, "a", HintKind::Changed, now + EVERY));
    }

    #[test]
    fn that_an_instance_is_gone_is_heard_however_often_it_changed_before_and_is_limited_too() {
        let (hints, now) = (of(&["a", "b"]), Instant::now());
        while take(&hints, "a", HintKind::Changed, now) {}
        for _ in 0..BURST {
            assert!(take(&hints, "a", HintKind::Gone, now));
        }
        assert!(!take(&hints, "a", HintKind::Gone, now));
    }

    #[test]
    fn a_hint_stays_until_a_read_that_was_sent_after_it_has_answered() {
        let (hints, now) = (of(&["a", "b"]), Instant::now());
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

    #[test]
    fn a_look_that_found_none_is_followed_by_another_though_no_driver_spoke_of_the_machine() {
        let hints = of(&["a"]);
        let at = Timestamp::from_second(60).unwrap();
        for uid in ["a", "unknown"] {
            hints.used(uid, None, HintUse::Missed(at));
        }
        let open = hints.of("a").unwrap();
        assert!(open.gone && !open.asked && open.not_before == Some(at));
        assert_eq!(hints.of("unknown"), None);
    }

    #[test]
    fn nothing_is_kept_of_a_machine_that_went_when_a_driver_spoke_of_it() {
        let (hints, now) = (of(&["a"]), Instant::now());
        let machine = json!({ "metadata": { "name": "a", "uid": "a" }, "spec": {} });
        hints.machines.apply(Event::Delete(serde_json::from_value(machine).unwrap()));
        hints.forget("a");
        assert!(!take(&hints, "a", HintKind::Gone, now));
        assert_eq!(hints.of("a"), None);
    }
}
