//! The Machines of a set or a reserve, as far as its own writes are seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_api::Machine;
use ostler_lifecycle::owner::{is_controlled_by, is_in_reserve};
use ostler_lifecycle::set::{Blind, LAG};

use crate::client::{WriteError, Writer};
use crate::handover::Handover;
use crate::kind::PassError;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::unseen::{Effect, Open};
use crate::watch::{Found, ObjectName};

/// How often it is checked whether a Machine that cannot be read has become readable.
const UNREADABLE: Duration = Duration::from_mins(1);

/// Looks for one kind of owners.
pub(crate) struct Seer<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) stores: &'a Stores,
    /// When to look again although nothing changed.
    pub(crate) resync: Duration,
}

/// The Machines seen by a pass.
pub(crate) struct Seen {
    pub(crate) machines: Vec<Arc<Machine>>,
    /// Names of Machines whose creation got no answer.
    pub(crate) unanswered: Vec<String>,
    /// Why there may be others.
    pub(crate) blind: Option<Blind>,
    /// When to look again.
    pub(crate) again: Duration,
}

impl Seer<'_> {
    /// How much longer the process that led before may have requests on their way; `None`: none any more.
    pub(crate) async fn predecessor(
        &self,
        handover: &Handover,
        settings: &Settings,
        seen: impl Fn(&Found<Machine>),
    ) -> Result<Option<Duration>, PassError> {
        let parts = settings.namespaces.parts();
        handover.wait(self.writer, &parts, seen).await.map_err(list_failed)
    }

    /// The Machines that the cache has of an owner or, where its writes should be seen by now and are not, the API server.
    pub(crate) async fn see(
        &self,
        owner: &str,
        namespace: &str,
        predecessor: Option<Duration>,
        cached: impl FnOnce() -> Vec<Arc<Machine>>,
        concerns: impl Fn(&Machine) -> bool,
    ) -> Result<Seen, PassError> {
        let store = &self.stores.machines;
        let OwnWrites { mut unanswered, wait } = self.compare(owner, namespace);
        let mut machines = cached();
        let (mut blind, mut again) = (None, self.resync);
        match wait {
            Some(left) if left.is_zero() => {
                let all = self.writer.all::<Machine>(Some(namespace)).await;
                let Found { objects: all, unreadable, .. } = all.map_err(list_failed)?;
                blind = unreadable.map(Blind::Unreadable);
                let open = self.settle(owner, &all);
                unanswered = open.unanswered;
                if let Some(left) = open.wait {
                    (blind, again) = (Some(Blind::OwnWrites), left);
                }
                machines = all.into_iter().filter(|machine| concerns(machine)).collect();
            }
            Some(left) => (blind, again) = (Some(Blind::OwnWrites), left),
            None => {}
        }
        if !unanswered.is_empty() {
            again = again.min(LAG);
        }
        if let Some(left) = predecessor {
            (blind, again) = (Some(Blind::Predecessor), left);
        } else if blind.is_none() {
            blind = store.unreadable_in(namespace).map(Blind::Unreadable);
        }
        if matches!(blind, Some(Blind::Unreadable(_))) {
            again = again.min(UNREADABLE);
        }
        Ok(Seen { machines, unanswered, blind, again })
    }
}

/// The unseen part of an owner's writes.
#[derive(Debug, Default, PartialEq, Eq)]
struct OwnWrites {
    /// Names of Machines whose creation got no answer.
    unanswered: Vec<String>,
    /// How much longer the cache may take for the others; `None`: it shows them all.
    wait: Option<Duration>,
}

impl OwnWrites {
    fn of(open: Option<&Open>, wait: Option<Duration>) -> Self {
        let sent = open.iter().flat_map(|open| &open.sent);
        let unanswered = sent.filter(|((of, _), it)| *of == Effect::Created && !it.answered);
        Self { unanswered: unanswered.map(|((_, name), _)| name.clone()).collect(), wait }
    }
}

impl Seer<'_> {
    /// Compares with the cache.
    fn compare(&self, owner: &str, namespace: &str) -> OwnWrites {
        let store = &self.stores.machines;
        let named = |name: &str| store.get(&ObjectName::new(namespace, name));
        let open = self.stores.unseen.compare(owner, |of, key, _| match of {
            Effect::Created => named(key).is_none(),
            Effect::Changed => named(key).is_some_and(|it| is_in_reserve(&it.metadata)),
            Effect::Deleted => {
                store.find(MachineIndex::Uid, key).iter().any(|it| !it.is_deleting())
            }
        });
        // A creation whose request cannot run any more either happened or did not: a list says so. An owner that is
        // deleted repeats none, and would wait for it for ever.
        let wait = open.as_ref().and_then(|open| {
            let awaited = open.sent.iter().any(|((of, _), sent)| match of {
                Effect::Created => !sent.may_arrive(),
                Effect::Changed => false,
                Effect::Deleted => true,
            });
            awaited.then(|| LAG.saturating_sub(open.since.elapsed()))
        });
        OwnWrites::of(open.as_ref(), wait)
    }

    /// Compares with a list of all Machines: forgets writes that did not happen, and returns writes still without an
    /// answer. Machines in the list stay until the cache shows them.
    fn settle(&self, owner: &str, listed: &[Arc<Machine>]) -> OwnWrites {
        let named: HashMap<_, _> = listed.iter().map(|it| (it.name(), &it.metadata)).collect();
        let living: HashMap<_, _> = listed.iter().map(|it| (it.uid(), !it.is_deleting())).collect();
        let mut wait = None;
        let open = self.stores.unseen.settle(owner, |of, key, sent| match of {
            Effect::Created => match named.get(key) {
                Some(machine) => {
                    sent.answered = true;
                    is_controlled_by(machine, owner)
                }
                // The Machine may still arrive while its request may run.
                None => sent.may_arrive(),
            },
            Effect::Changed => true,
            // So may a deletion: until then, whether another Machine has to go instead is unknown.
            Effect::Deleted => match living.get(key) {
                None => false,
                Some(false) => true,
                Some(true) => {
                    let arrives = sent.may_arrive();
                    wait = wait.or_else(|| arrives.then_some(LAG));
                    arrives
                }
            },
        });
        OwnWrites::of(open.as_ref(), wait)
    }
}

fn list_failed(source: WriteError) -> PassError {
    PassError::Api { what: "cannot list the machines of a set", source }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bench::{Bench, put};
    use crate::unseen::ARRIVES;

    fn machine(name: &str, deleting: bool) -> Value {
        let at = deleting.then_some("2026-01-01T00:00:00Z");
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "deletionTimestamp": at,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true
                }]
            },
            "spec": {}
        })
    }

    /// The cache shows these Machines, or a list does.
    fn unseen(
        bench: &Bench,
        cache: &[Value],
        list: Option<&[Value]>,
    ) -> (Vec<String>, Option<Duration>) {
        for it in cache {
            put(&bench.stores.machines, it.clone());
        }
        let (writer, stores) = (&bench.writer(), &bench.stores);
        let seer = Seer { writer, stores, resync: LAG };
        let read = |it: &Value| Arc::new(serde_json::from_value(it.clone()).unwrap());
        let OwnWrites { unanswered, wait } = match list {
            None => seer.compare("s", "default"),
            Some(list) => seer.settle("s", &list.iter().map(read).collect::<Vec<_>>()),
        };
        (unanswered, wait)
    }

    const SEEN: (Vec<String>, Option<Duration>) = (Vec::new(), None);

    #[tokio::test(start_paused = true)]
    async fn a_write_is_awaited_until_the_cache_shows_it() {
        let bench = Bench::new();
        let ours = &bench.stores.unseen;
        assert_eq!(unseen(&bench, &[], None), SEEN);
        ours.listed("s", (Effect::Created, "a"));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(unseen(&bench, &[], None).1, Some(Duration::from_secs(2)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(unseen(&bench, &[], None).1, Some(Duration::ZERO));
        assert_eq!(unseen(&bench, &[machine("a", false)], None), SEEN);
        ours.listed("s", (Effect::Deleted, "a"));
        assert_eq!(unseen(&bench, &[], None).1, Some(LAG));
        assert_eq!(unseen(&bench, &[machine("a", true)], None), SEEN);
        ours.listed("s", (Effect::Deleted, "gone"));
        assert_eq!(unseen(&bench, &[], None), SEEN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_forgets_what_did_not_happen_and_keeps_what_did_until_it_is_seen() {
        let bench = Bench::new();
        let ours = &bench.stores.unseen;
        for name in ["gone", "there"] {
            ours.listed("s", (Effect::Created, name));
        }
        for name in ["arrived", "lost"] {
            ours.sent("s", None, (Effect::Created, name));
        }
        for name in ["alive", "going"] {
            ours.listed("s", (Effect::Deleted, name));
        }
        let list = ["there", "arrived", "alive"].map(|name| machine(name, false));
        let list: Vec<_> = list.into_iter().chain([machine("going", true)]).collect();
        let lost = vec!["lost".to_owned()];
        assert_eq!(unseen(&bench, &[], Some(&list)), (lost.clone(), None));
        assert_eq!(unseen(&bench, &[machine("going", false)], None).1, Some(LAG));
        assert_eq!(unseen(&bench, &list, None), (lost.clone(), None), "it may still arrive");
        tokio::time::advance(ARRIVES).await;
        // No pass repeats the creation, and its request has ended.
        assert_eq!(unseen(&bench, &[], None), (lost, Some(Duration::ZERO)));
        assert_eq!(unseen(&bench, &[], Some(&list)), SEEN);
        assert_eq!(unseen(&bench, &[], None), SEEN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_without_an_answer_may_still_arrive_and_no_other_machine_goes_meanwhile() {
        let (bench, alive) = (Bench::new(), [machine("a", false)]);
        bench.stores.unseen.sent("s", None, (Effect::Deleted, "a"));
        tokio::time::advance(LAG).await;
        assert_eq!(unseen(&bench, &alive, None).1, Some(Duration::ZERO));
        assert_eq!(unseen(&bench, &[], Some(&alive)).1, Some(LAG));
        tokio::time::advance(ARRIVES).await;
        assert_eq!(unseen(&bench, &[], Some(&alive)), SEEN);
        assert_eq!(unseen(&bench, &[], None), SEEN, "it did not happen");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_taken_is_known_until_it_is_in_reserve_no_more() {
        let (bench, ours) = (Bench::new(), [(Effect::Changed, "a"), (Effect::Changed, "b")]);
        let mut spare = machine("a", false);
        spare["metadata"]["ownerReferences"][0]["kind"] = json!("MachineReserve");
        for it in ours {
            bench.stores.unseen.sent("s", None, it);
        }
        assert_eq!(unseen(&bench, &[spare, machine("b", false)], None), SEEN, "none is created");
        let open = bench.stores.unseen.open("s").unwrap();
        assert_eq!(open.keys(Effect::Changed).collect::<Vec<_>>(), ["a"]);
        unseen(&bench, &[machine("a", false)], None);
        assert!(bench.stores.unseen.open("s").is_none());
    }
}
