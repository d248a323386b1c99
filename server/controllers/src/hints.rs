//! What drivers say of instances by themselves: which Machine it is about, how often the core listens, and what it
//! has not looked into yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::Machine;
use ostler_api::hint::{Hint, HintKind};
use ostler_lifecycle::hint::{HintUse, HintView};
use ostler_sessions::{Rate, Sessions, TokenBucket};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::debug;

use crate::fanout::Fanout;
use crate::queue::Priority;
use crate::stores::MachineIndex;
use crate::watch::ObjectName;

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
    fn take(&self, uid: &str, hint: &Hint, clock: Timestamp, now: Instant) -> bool {
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

impl Fanout {
    /// A driver says that something happened to an instance: its machine is reconciled, and reads the instance. Nothing
    /// follows from what cannot be assigned to a machine of this provider, or comes too often.
    pub(crate) fn hint(
        &self,
        drivers: &Sessions,
        clock: Timestamp,
        provider: &str,
        mut hint: Hint,
    ) {
        let is_ours = |cluster: &str| {
            drivers.cluster_id() == cluster
                || drivers.previous_cluster_ids().iter().any(|id| id == cluster)
        };
        let Some(machine) = self.machine_of_hint(provider, &hint, is_ours) else {
            debug!(
                provider,
                kind = hint.kind.as_str(),
                "an event of a driver is about no machine of ours"
            );
            return drivers.hint_dropped(provider, "UNKNOWN_MACHINE");
        };
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        hint.message = drivers.scrub(namespace, &machine.spec.class.name, &hint.message);
        if !self.state.hints.take(machine.uid(), &hint, clock, Instant::now()) {
            return drivers.hint_dropped(provider, "MACHINE_RATE");
        }
        debug!(
            provider,
            machine = machine.name(),
            kind = hint.kind.as_str(),
            "an event of a driver"
        );
        self.queues.machines.add(ObjectName::of(machine.as_ref()), Priority::Change);
    }

    /// The one machine of this provider that a hint is about: by cluster and UID, else by provider id.
    fn machine_of_hint(
        &self,
        provider: &str,
        hint: &Hint,
        is_ours: impl Fn(&str) -> bool,
    ) -> Option<Arc<Machine>> {
        let machines = &self.stores.machines;
        let by_tags = !hint.machine_uid.is_empty() && !hint.cluster_id.is_empty();
        if by_tags && !is_ours(&hint.cluster_id) {
            return None;
        }
        let mut found = Vec::new();
        if by_tags {
            found = machines.find(MachineIndex::Uid, hint.machine_uid.as_str());
        }
        if found.is_empty() && !hint.provider_id.is_empty() {
            found = machines.find(MachineIndex::ProviderId, hint.provider_id.as_str());
        }
        found.retain(|machine| self.is_served_by(machine, provider));
        let one = found.pop()?;
        found.is_empty().then_some(one)
    }

    fn is_served_by(&self, machine: &Machine, provider: &str) -> bool {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let name = ObjectName::new(namespace, &machine.spec.class.name);
        let kept = || self.stores.last_known(&name).map(|kept| Arc::new(kept.class));
        let class = self.stores.classes.get(&name).or_else(kept);
        class.is_some_and(|class| self.settings.driver_name(class.provider()) == provider)
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
