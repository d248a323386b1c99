//! What is asked of cores and drivers about groups: POOL-1 to POOL-3, judged by what the cloud has.
//!
//! * POOL-1: the size of a group falls only for instances that go with it, or for places that are empty: never twice for
//!   one victim.
//! * POOL-2: no core lowers a size below a recent wish of its pool, or raises it beyond a wish and the surge.
//! * POOL-3: an instance is deleted by name only after its Machine was deleted and its Node was drained.
//! * POOL-4 to POOL-7: see `members` and `collected`.
//! * POOL-8: no core removes the finalizer of a pool that has a group.
//! * POOL-9: see `others`.
//!
//! INV-3 is asked of the Machines of groups as of any, and INV-8 of these operations.
//!
//! *Lately* is as long as an operation may take that was right when it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::MachinePool;
use ostler_api::machine_pool::PoolStrategyType;
use tokio::time::Instant;

use super::members::Member;

/// How long an operation on a group may take.
const OPERATION: Duration = Duration::from_mins(20);

/// Current pools and their recent wishes.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) lag: Duration,
    pub(super) pools: BTreeMap<String, Kept>,
    /// By UID of the Machine.
    pub(super) members: BTreeMap<String, Member>,
    /// By UID of a pool: when lists of groups that showed its group began and ended.
    pub(super) looks: BTreeMap<String, Vec<(Instant, Instant)>>,
    /// UIDs of pools whose groups users forsook, or that never existed.
    pub(super) forsaken: BTreeSet<String>,
    /// Another system changes groups right now.
    pub others: bool,
    /// By group: UID of its pool.
    groups: BTreeMap<String, String>,
    /// By group: how many instances began to go since its size was written last.
    going: BTreeMap<String, usize>,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) name: String,
    ends: bool,
    /// Another system scales it.
    pub(super) others: bool,
    /// Since when there is no such pool any more.
    pub(super) gone: Option<Instant>,
    wants: Vec<(Instant, Wants)>,
}

/// How many instances the group may have, and how many of them may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) least: i32,
    most: i32,
    /// For replacements.
    pub(super) missing: i32,
    /// For updates in place.
    pub(super) in_place: i32,
}

impl Kept {
    /// Whether another system says how many instances it has, now and later.
    pub(super) const fn is_scaled_by_others(&self) -> bool {
        self.others && !self.ends
    }

    /// The wishes within `lag`.
    pub(super) fn lately(&self, lag: Duration) -> impl Iterator<Item = Wants> {
        let ends = self.wants.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        let recent = move |end: Option<Instant>| end.is_none_or(|end| end.elapsed() <= lag);
        self.wants.iter().zip(ends).filter(move |(_, end)| recent(*end)).map(|((_, it), _)| *it)
    }
}

/// The size of a group before and after it was written, and how many of its instances live then.
#[derive(Clone, Copy, Debug)]
pub struct Resized {
    /// Before.
    pub before: i32,
    /// After.
    pub after: i32,
    /// How many live.
    pub live: usize,
    /// The group was made just now.
    pub new: bool,
}

/// The users of the simulation write numbers.
fn number(value: Option<&IntOrString>, absent: i32) -> i32 {
    match value {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(_)) | None => absent,
    }
}

impl Rules {
    /// Without any knowledge.
    pub fn new(lag: Duration) -> Self {
        Self { lag, ..Self::default() }
    }

    /// A pool was written, or is gone.
    pub fn pool(&mut self, pool: &MachinePool, gone: bool) {
        let ends = gone || pool.metadata.deletion_timestamp.is_some();
        let strategy = &pool.spec.strategy;
        let (rolling, in_place) = (&strategy.rolling_update, &strategy.in_place_update);
        let rolling = rolling.as_ref().map(|it| (&it.max_surge, &it.max_unavailable));
        let surge = number(rolling.and_then(|it| it.0.as_ref()), 1);
        let replicas = if ends { 0 } else { pool.replicas() };
        let in_place = in_place.as_ref().map_or(1, |it| number(it.max_unavailable.as_ref(), 1));
        let missing = match strategy.type_ {
            Some(PoolStrategyType::InPlaceUpdate) => in_place,
            _ => number(rolling.and_then(|it| it.1.as_ref()), 0),
        };
        let now = Wants { least: replicas, most: replicas + surge, missing, in_place };
        let uid = pool.metadata.uid.clone().unwrap_or_default();
        let name = pool.metadata.name.clone().unwrap_or_default();
        let others = pool.is_externally_scaled();
        let new = Kept { name, ends, others, gone: None, wants: Vec::new() };
        let kept = self.pools.entry(uid).or_insert(new);
        kept.ends = ends;
        kept.gone = gone.then(Instant::now);
        if kept.wants.last().is_none_or(|(_, last)| *last != now) {
            kept.wants.push((Instant::now(), now));
        }
    }

    /// A pool of this name is gone.
    pub fn gone(&mut self, name: &str) {
        for kept in self.pools.values_mut().filter(|kept| kept.name == name) {
            kept.ends = true;
            kept.gone.get_or_insert_with(Instant::now);
            kept.wants.push((Instant::now(), Wants::default()));
        }
    }

    /// A core removed the finalizer of this pool. Returns the violation.
    pub fn released(&self, pool: &MachinePool) -> Option<String> {
        let uid = pool.uid();
        let mut left = self.groups.iter().filter(|(_, of)| *of == uid && !self.is_forsaken(uid));
        let (group, _) = left.next()?;
        Some(format!("POOL-8: {} has no finalizer any more, and {group} exists", pool.name()))
    }

    /// A group was made, or changed. `late`: the cloud does what nobody waits for any more.
    pub fn grouped(&mut self, group: &str, uid: &str, late: bool) {
        let new = self.groups.insert(group.to_owned(), uid.to_owned()).is_none();
        if new && late && self.ends(uid) {
            self.forsakes(uid);
        }
    }

    /// A group is gone.
    pub fn ungrouped(&mut self, group: &str) {
        self.groups.remove(group);
    }

    /// Whether this pool is deleted, or was never seen.
    pub fn ends(&self, uid: &str) -> bool {
        self.pools.get(uid).is_none_or(|kept| kept.ends)
    }

    /// An instance of a group begins to go.
    pub fn goes(&mut self, group: &str) {
        *self.going.entry(group.to_owned()).or_default() += 1;
    }

    /// The size of a group is written. Returns the violation.
    pub fn resized(&mut self, group: &str, uid: &str, size: Resized) -> Option<String> {
        let victims = self.going.remove(group).unwrap_or_default();
        if self.others {
            return None;
        }
        let Resized { before, after, live, .. } = size;
        let fell = usize::try_from(before.saturating_sub(after)).unwrap_or_default();
        if fell > victims && usize::try_from(after).is_ok_and(|after| after < live) {
            return Some(format!(
                "POOL-1: {group} falls from {before} to {after} with {victims} victims and {live} that live"
            ));
        }
        let kept = self.pools.get(uid)?;
        if kept.others {
            return self.meddles(uid, size);
        }
        let lately: Vec<_> = kept.lately(OPERATION).collect();
        let least = lately.iter().map(|it| it.least).min()?;
        let most = lately.iter().map(|it| it.most).max()?;
        let name = &kept.name;
        if after < before && after < least {
            return Some(format!(
                "POOL-2: {name} falls from {before} to {after}, and {least} are wanted"
            ));
        }
        (after > before && after > most).then(|| {
            format!("POOL-2: {name} grows from {before} to {after}, and {most} are the most")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(replicas: i32) -> MachinePool {
        let pool = serde_json::from_value(serde_json::json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "uid": "u" },
            "spec": {
                "replicas": replicas, "strategy": { "rollingUpdate": { "maxSurge": 1 } },
                "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } },
            },
        }));
        pool.unwrap()
    }

    fn rules(replicas: &[i32]) -> Rules {
        let mut rules = Rules::default();
        for replicas in replicas {
            rules.pool(&pool(*replicas), false);
        }
        rules
    }

    fn broken(rules: &mut Rules, victims: usize, (before, after, live): (i32, i32, usize)) -> bool {
        (0..victims).for_each(|_| rules.goes("g"));
        rules.resized("g", "u", Resized { before, after, live, new: false }).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_size_falls_once_for_a_victim_and_for_empty_places() {
        let mut rules = rules(&[5, 0]);
        assert!(!broken(&mut rules, 1, (3, 2, 2)));
        assert!(broken(&mut rules, 0, (2, 1, 2)), "that victim was counted already");
        assert!(broken(&mut rules, 1, (3, 1, 2)), "one too many");
        assert!(!broken(&mut rules, 0, (5, 2, 2)), "three never came");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_keeps_its_finalizer_while_it_has_a_group() {
        let mut rules = rules(&[1]);
        let pool = pool(1);
        assert_eq!(rules.released(&pool), None);
        rules.grouped("g", "u", false);
        assert!(rules.released(&pool).is_some());
        rules.ungrouped("g");
        assert_eq!(rules.released(&pool), None);
        rules.pool(&pool, true);
        rules.grouped("g", "u", true);
        assert_eq!(rules.released(&pool), None, "nobody could know of it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_size_stays_within_what_was_wanted_lately() {
        let mut rules = rules(&[3]);
        assert!(broken(&mut rules, 1, (3, 2, 2)), "three are wanted");
        assert!(!broken(&mut rules, 1, (4, 3, 3)), "the surge goes");
        assert!(!broken(&mut rules, 0, (3, 4, 3)));
        assert!(broken(&mut rules, 0, (4, 5, 4)), "more than the surge");
        let mut rules = self::rules(&[3, 1]);
        assert!(!broken(&mut rules, 1, (3, 2, 2)));
        tokio::time::advance(OPERATION * 2).await;
        assert!(broken(&mut rules, 0, (2, 3, 2)), "nobody wants that any more");
    }
}
