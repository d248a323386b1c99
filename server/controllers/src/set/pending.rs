//! The writes of each set, or reserve, that its cache does not show yet. Safe to lose: a new leader begins with a list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ostler_api::Machine;
use ostler_lifecycle::owner::is_controlled_by;
use ostler_lifecycle::set::LAG;
use ostler_lifecycle::write::{Remember, Write};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::{PATIENCE, WriteError};

/// How a creation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    /// The API server confirmed it.
    Confirmed,
    /// Sent at this time, and not answered.
    Unanswered(Instant),
}

/// The writes of a set.
#[derive(Debug)]
struct Writes {
    /// By name of the Machine.
    created: BTreeMap<String, Creation>,
    /// By UID of the Machine; the time at which a deletion was sent that got no answer.
    deleted: BTreeMap<String, Option<Instant>>,
    /// Names of Machines in reserve that it wanted to take, not answered.
    taking: BTreeSet<String>,
    /// When the last write was sent, or the API was asked last.
    since: Instant,
}

/// The unseen part of a set's writes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unseen {
    /// Names of Machines whose creation got no answer.
    pub(super) unanswered: Vec<String>,
    /// How much longer the cache may take for the others; `None`: it shows them all.
    pub(super) wait: Option<Duration>,
}

/// By UID of the set. Bounded by the existing sets, and by the writes of one pass for each.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<HashMap<String, Writes>>);

impl Pending {
    fn change(&self, set: &str, change: impl FnOnce(&mut Writes)) {
        let mut all = self.0.lock();
        let writes = all.entry(set.to_owned()).or_insert_with(|| Writes {
            created: BTreeMap::new(),
            deleted: BTreeMap::new(),
            taking: BTreeSet::new(),
            since: Instant::now(),
        });
        writes.since = Instant::now();
        change(writes);
    }

    /// The write is about to be sent.
    pub(crate) fn sends(&self, owner: &str, write: &Write) {
        match write.remember {
            Remember::Name => self.sent(owner, write.of.name()),
            Remember::Taking => self.takes(owner, write.of.name()),
            Remember::Nothing | Remember::Created | Remember::Deletion | Remember::Answer => {}
        }
    }

    /// Records the answer to a write.
    pub(crate) fn answered(&self, owner: &str, write: &Write, answer: Result<(), &WriteError>) {
        let name = write.of.name();
        match (write.remember, answer) {
            (Remember::Name, Ok(())) => self.confirmed(owner, name),
            // The creation may have happened: the name stays, and is repeated.
            (Remember::Name | Remember::Taking, Err(error)) if error.may_have_happened() => {}
            (Remember::Name, Err(_)) => self.refused(owner, name),
            (Remember::Taking, _) => self.took(owner, name),
            (Remember::Deletion, Ok(())) => self.deleted(owner, write.of.uid()),
            (Remember::Deletion, Err(error)) if error.may_have_happened() => {
                self.may_be_deleted(owner, write.of.uid());
            }
            (Remember::Deletion, Err(_))
            | (Remember::Nothing | Remember::Created | Remember::Answer, _) => {}
        }
    }

    /// A creation is sent under this name.
    pub(super) fn sent(&self, set: &str, name: &str) {
        let unanswered = Creation::Unanswered(Instant::now());
        self.change(set, |writes| {
            writes.created.insert(name.to_owned(), unanswered);
        });
    }

    /// The API server has this Machine.
    pub(super) fn confirmed(&self, set: &str, name: &str) {
        let confirmed = Creation::Confirmed;
        self.change(set, |writes| {
            writes.created.insert(name.to_owned(), confirmed);
        });
    }

    /// The API server does not have this Machine, and will not get it from us.
    pub(super) fn refused(&self, set: &str, name: &str) {
        self.change(set, |writes| {
            writes.created.remove(name);
        });
    }

    /// The API server confirmed that the Machine with this UID is being deleted.
    pub(super) fn deleted(&self, set: &str, machine: &str) {
        self.change(set, |writes| {
            writes.deleted.insert(machine.to_owned(), None);
        });
    }

    /// The deletion of the Machine with this UID was sent, and not answered.
    pub(super) fn may_be_deleted(&self, set: &str, machine: &str) {
        let now = Instant::now();
        self.change(set, |writes| {
            writes.deleted.insert(machine.to_owned(), Some(now));
        });
    }

    /// A Machine in reserve is about to be taken.
    pub(super) fn takes(&self, set: &str, machine: &str) {
        self.change(set, |writes| {
            writes.taking.insert(machine.to_owned());
        });
    }

    /// The Machine was taken, or this request will not take it.
    pub(super) fn took(&self, set: &str, machine: &str) {
        if let Some(writes) = self.0.lock().get_mut(set) {
            writes.taking.remove(machine);
        }
    }

    /// Names of reserve Machines that may already be the set's: Machines that the cache still shows in reserve.
    pub(super) fn taking(&self, set: &str, in_reserve: impl Fn(&str) -> bool) -> Vec<String> {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(set) else { return Vec::new() };
        writes.taking.retain(|name| in_reserve(name));
        writes.taking.iter().cloned().collect()
    }

    /// The set is gone.
    pub(crate) fn forget(&self, set: &str) {
        self.0.lock().remove(set);
    }

    /// Names under which Machines were created, and which the cache may not show yet.
    pub(super) fn created(&self, set: &str) -> BTreeSet<String> {
        let all = self.0.lock();
        all.get(set).into_iter().flat_map(|writes| writes.created.keys().cloned()).collect()
    }

    /// Compares with the cache: `by_name` and `by_uid` find Machines there.
    pub(super) fn compare(
        &self,
        set: &str,
        by_name: impl Fn(&str) -> Option<Arc<Machine>>,
        by_uid: impl Fn(&str) -> Option<Arc<Machine>>,
    ) -> Unseen {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(set) else { return Unseen::default() };
        writes.created.retain(|name, _| by_name(name).is_none());
        writes.deleted.retain(|uid, _| by_uid(uid).is_some_and(|machine| !machine.is_deleting()));
        if writes.created.is_empty() && writes.deleted.is_empty() {
            if writes.taking.is_empty() {
                all.remove(set);
            }
            return Unseen::default();
        }
        // A creation whose request cannot run any more either happened or did not: a list says so. A set that is deleted
        // repeats none, and would wait for it for ever.
        let awaited = writes.created.values().any(|it| match it {
            Creation::Confirmed => true,
            Creation::Unanswered(sent) => sent.elapsed() >= 2 * PATIENCE,
        });
        let left = LAG.saturating_sub(writes.since.elapsed());
        Unseen {
            unanswered: unanswered(writes),
            wait: (awaited || !writes.deleted.is_empty()).then_some(left),
        }
    }

    /// Compares with a list of all Machines: forgets writes that did not happen, and returns writes still without an
    /// answer. Machines in the list stay until the cache shows them.
    pub(super) fn settle(&self, set: &str, listed: &[Arc<Machine>]) -> Unseen {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(set) else { return Unseen::default() };
        writes.since = Instant::now();
        let named: HashMap<&str, &Machine> =
            listed.iter().map(|machine| (machine.name(), machine.as_ref())).collect();
        let living: HashMap<&str, bool> =
            listed.iter().map(|machine| (machine.uid(), !machine.is_deleting())).collect();
        writes.created.retain(|name, creation| match (named.get(name.as_str()), *creation) {
            (Some(machine), _) => {
                *creation = Creation::Confirmed;
                is_controlled_by(&machine.metadata, set)
            }
            (None, Creation::Confirmed) => false,
            // The Machine may still arrive while its request may run.
            (None, Creation::Unanswered(sent)) => sent.elapsed() < 2 * PATIENCE,
        });
        // So may a deletion: until then, whether another Machine has to go instead is unknown.
        writes.deleted.retain(|uid, sent| match living.get(uid.as_str()) {
            None => false,
            Some(false) => true,
            Some(true) => sent.is_some_and(|sent| sent.elapsed() < 2 * PATIENCE),
        });
        let open = writes.deleted.keys().any(|uid| living.get(uid.as_str()) == Some(&true));
        Unseen { unanswered: unanswered(writes), wait: open.then_some(LAG) }
    }
}

fn unanswered(writes: &Writes) -> Vec<String> {
    let open = writes.created.iter().filter(|(_, it)| matches!(it, Creation::Unanswered(_)));
    open.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(name: &str, deleting: bool) -> Arc<Machine> {
        let at = deleting.then_some("2026-01-01T00:00:00Z");
        Arc::new(
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {
                    "name": name, "uid": name, "deletionTimestamp": at,
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true
                    }]
                },
                "spec": {}
            }))
            .unwrap(),
        )
    }

    fn unseen(pending: &Pending, cache: &[Arc<Machine>]) -> Unseen {
        let find = |key: &str| cache.iter().find(|machine| machine.name() == key).cloned();
        pending.compare("s", find, find)
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_awaited_until_the_cache_shows_it() {
        let pending = Pending::default();
        assert_eq!(unseen(&pending, &[]), Unseen::default());
        pending.sent("s", "a");
        pending.confirmed("s", "a");
        assert_eq!(unseen(&pending, &[]).wait, Some(LAG));
        assert_eq!(unseen(&pending, &[machine("a", false)]), Unseen::default());
        pending.deleted("s", "a");
        assert_eq!(unseen(&pending, &[machine("a", false)]).wait, Some(LAG));
        assert_eq!(unseen(&pending, &[machine("a", true)]), Unseen::default());
        pending.deleted("s", "a");
        assert_eq!(unseen(&pending, &[]), Unseen::default(), "it is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_has_five_seconds() {
        let pending = Pending::default();
        pending.confirmed("s", "a");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(unseen(&pending, &[]).wait, Some(Duration::from_secs(2)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(unseen(&pending, &[]).wait, Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_forgets_what_did_not_happen_and_keeps_what_did_until_it_is_seen() {
        let pending = Pending::default();
        pending.confirmed("s", "gone");
        pending.confirmed("s", "there");
        pending.sent("s", "arrived");
        pending.sent("s", "lost");
        pending.deleted("s", "alive");
        pending.deleted("s", "going");
        let list = [
            machine("there", false),
            machine("arrived", false),
            machine("alive", false),
            machine("going", true),
        ];
        assert_eq!(
            pending.settle("s", &list),
            Unseen { unanswered: vec!["lost".into()], wait: None }
        );
        assert_eq!(unseen(&pending, &[machine("going", false)]).wait, Some(LAG));
        assert_eq!(unseen(&pending, &list).unanswered, ["lost"], "it may still arrive");
        tokio::time::advance(2 * PATIENCE).await;
        assert_eq!(pending.settle("s", &list), Unseen::default());
        assert_eq!(unseen(&pending, &list), Unseen::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_without_an_answer_may_still_arrive_and_no_other_machine_goes_meanwhile() {
        let pending = Pending::default();
        pending.may_be_deleted("s", "a");
        let alive = [machine("a", false)];
        tokio::time::advance(LAG).await;
        assert_eq!(unseen(&pending, &alive).wait, Some(Duration::ZERO));
        assert_eq!(pending.settle("s", &alive).wait, Some(LAG));
        tokio::time::advance(2 * PATIENCE).await;
        assert_eq!(pending.settle("s", &alive), Unseen::default());
        assert_eq!(unseen(&pending, &alive), Unseen::default(), "it did not happen");
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_without_an_answer_is_not_awaited_but_repeated() {
        let pending = Pending::default();
        pending.sent("s", "a");
        assert_eq!(unseen(&pending, &[]), Unseen { unanswered: vec!["a".into()], wait: None });
        pending.refused("s", "a");
        assert_eq!(unseen(&pending, &[]), Unseen::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_without_an_answer_that_nobody_repeats_is_looked_for_once_its_request_ended()
    {
        let pending = Pending::default();
        pending.sent("s", "a");
        tokio::time::advance(2 * PATIENCE).await;
        let unseen = unseen(&pending, &[]);
        assert_eq!((unseen.unanswered.len(), unseen.wait), (1, Some(Duration::ZERO)));
        assert_eq!(pending.settle("s", &[]), Unseen::default(), "it did not happen");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_taken_is_known_until_it_is_answered_or_is_in_reserve_no_more() {
        let pending = Pending::default();
        pending.takes("s", "a");
        pending.takes("s", "b");
        assert_eq!(pending.taking("s", |_| true), ["a", "b"]);
        pending.took("s", "a");
        assert_eq!(pending.taking("s", |_| true), ["b"]);
        assert_eq!(unseen(&pending, &[]), Unseen::default(), "it is no creation");
        assert_eq!(pending.taking("s", |_| false), Vec::<String>::new());
        assert_eq!(pending.taking("s", |_| true), Vec::<String>::new());
    }
}
