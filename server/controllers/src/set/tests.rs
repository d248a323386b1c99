use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{Cause, Failures, Plan, Snapshot, Victim};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::bench::Bench;
use crate::election::Predecessor;
use crate::metrics::register_sets;

/// Beside a machine controller of another process.
fn controller(bench: &Bench) -> Sets {
    Sets {
        writer: bench.writer(),
        stores: bench.stores.clone(),
        settings: Arc::clone(&bench.settings),
        clock: DebugClock(Arc::new(|| Timestamp::UNIX_EPOCH)),
        recorder: bench.recorder(),
        metrics: register_sets(&mut Registry::default(), &bench.stores),
        pending: Arc::default(),
        handover: Handover::new(Predecessor::None),
        roll: Mutex::default(),
        runs_machines: false,
    }
}

fn set() -> MachineSet {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": { "name": "s", "namespace": "default", "uid": "s" }, "spec": {}
    }))
    .unwrap()
}

fn machine() -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": "m", "namespace": "default", "uid": "m",
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                "name": "s", "uid": "s", "controller": true,
            }]
        },
        "spec": {}
    }))
    .unwrap()
}

fn facts() -> Snapshot {
    Snapshot {
        set: Arc::new(set()),
        machines: Vec::new(),
        others: Vec::new(),
        wishes: BTreeMap::new(),
        unanswered: Vec::new(),
        blind: None,
        foreign: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// INV-11: it would have one more than it wants if the user gave the labels back.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_release_was_refused_is_not_replaced_yet() {
    for (bench, created) in [(Bench::new(), true), (Bench::new().refusing(422), false)] {
        let bench = bench.having(serde_json::to_value(set()).unwrap());
        let plan = Plan { release: vec![Arc::new(machine())], create: 1, ..Plan::default() };
        let done = controller(&bench).carry_out(&facts(), &plan).await.unwrap();
        let writes = bench.writes();
        let creates =
            writes.iter().any(|(name, _)| name.starts_with("POST") && name.ends_with("/machines"));
        assert_eq!((creates, done.retry), (created, !created), "{writes:?}");
    }
}

/// INV-13, INV-14: what is not adopted is nobody's, and is not there to be chosen among.
#[tokio::test(start_paused = true)]
async fn nothing_goes_in_a_pass_in_which_an_adoption_was_refused() {
    for (bench, deleted) in [(Bench::new(), true), (Bench::new().refusing(422), false)] {
        let bench = bench.having(serde_json::to_value(set()).unwrap());
        let victim = Victim { machine: Arc::new(machine()), cause: Cause::Surplus };
        let adopt = vec![Arc::new(machine())];
        let plan = Plan { adopt, delete: vec![victim], ..Plan::default() };
        let done = controller(&bench).carry_out(&facts(), &plan).await.unwrap();
        let writes = bench.writes();
        assert_eq!(
            writes.iter().any(|(name, _)| name.starts_with("DELETE")),
            deleted,
            "{writes:?}"
        );
        assert_eq!(done.retry, !deleted);
    }
}

/// INV-12, INV-13: the cache may lag, and what is chosen may have become available or have been released.
#[tokio::test(start_paused = true)]
async fn a_machine_that_changed_since_it_was_chosen_is_looked_at_again() {
    let bench = Bench::new().refusing(409).having(serde_json::to_value(set()).unwrap());
    let mut chosen = machine();
    chosen.metadata.resource_version = Some("7".to_owned());
    let victim = Victim { machine: Arc::new(chosen), cause: Cause::Surplus };
    let plan = Plan { delete: vec![victim], ..Plan::default() };
    let done = controller(&bench).carry_out(&facts(), &plan).await.unwrap();
    assert_eq!((done.retry, done.failures), (true, Failures::default()));
    assert_eq!(bench.writes()[0].1["preconditions"]["resourceVersion"], "7");
}

/// #984: a Machine whose deletion was refused was shown as Terminating, and then no controller deleted it.
#[tokio::test(start_paused = true)]
async fn only_a_machine_whose_deletion_was_accepted_is_shown_as_terminating() {
    let victim = Victim { machine: Arc::new(machine()), cause: Cause::Surplus };
    for (bench, shown) in [(Bench::new(), true), (Bench::new().refusing(403), false)] {
        let deleted = controller(&bench).delete(&set(), std::slice::from_ref(&victim)).await;
        assert_eq!(deleted.is_ok(), shown);
        let writes = bench.writes();
        assert!(writes[0].0.starts_with("DELETE"), "{writes:?}");
        let terminating = |(path, sent): &(String, serde_json::Value)| {
            path.starts_with("PATCH") && sent["status"]["currentStatus"]["phase"] == "Terminating"
        };
        assert_eq!(writes.iter().any(terminating), shown, "{writes:?}");
    }
}
