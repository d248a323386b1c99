use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{Cause, Failures, Plan, Snapshot, Victim};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::bench::{Bench, handed_out, put};
use crate::election::Predecessor;
use crate::metrics::{Leads, register_sets};
use crate::watch::{Seen, Unreadable};

/// Beside a machine controller of another process.
fn controller(bench: &Bench) -> Sets {
    Sets {
        writer: bench.writer(),
        stores: bench.stores.clone(),
        settings: Arc::clone(&bench.settings),
        clock: DebugClock(Arc::new(|| Timestamp::UNIX_EPOCH)),
        recorder: bench.recorder(),
        metrics: register_sets(&mut Registry::default(), &bench.stores, &Leads::default()),
        pending: Arc::default(),
        handover: Handover::new(Predecessor::None),
        freezes: Arc::new(Freezes {
            writer: bench.writer(),
            stores: bench.stores.clone(),
            settings: Arc::clone(&bench.settings),
            clock: DebugClock(Arc::new(|| Timestamp::UNIX_EPOCH)),
            recorder: bench.recorder(),
            lifted: Mutex::default(),
        }),
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

/// A bare Machine.
fn free(
    name: &str,
    labels: &serde_json::Value,
    annotations: &serde_json::Value,
) -> serde_json::Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "labels": labels, "annotations": annotations
        },
        "spec": {}
    })
}

/// The Machines that a pass over a set with this selector looks at, and how many the caches handed out for that.
fn concerned(bench: &Bench, selector: serde_json::Value) -> (Vec<String>, usize) {
    let mut set = set();
    set.spec.selector = serde_json::from_value(selector).unwrap();
    handed_out();
    let machines = controller(bench).cached(&set);
    let mut names: Vec<_> = machines.iter().map(|machine| machine.name().to_owned()).collect();
    names.sort();
    (names, handed_out())
}

/// INV-13: a pass sees every Machine that it may adopt, and looks at few others.
#[tokio::test]
async fn beside_many_bare_machines_a_pass_looks_at_those_that_its_selector_may_select() {
    let bench = Bench::new();
    let machines = &bench.stores.machines;
    for number in 0..100 {
        put(machines, free(&format!("x{number}"), &json!({ "app": "a" }), &json!({})));
    }
    let ours = json!({ "app": "a", "hash": "1" });
    let released = json!({ "ostler.dev/released-by": "s" });
    put(machines, free("free", &ours, &json!({})));
    put(machines, free("let-go", &json!({ "app": "a" }), &released));
    put(machines, free("let-go-and-ours-again", &ours, &released));
    put(machines, free("another-s", &json!({ "hash": "1" }), &json!({})));
    put(machines, json!(machine()));
    let all = ["free", "let-go", "let-go-and-ours-again", "m"];
    let (seen, looked_at) = concerned(&bench, json!({ "matchLabels": ours }));
    assert_eq!(seen, all);
    assert!(looked_at < 10, "{looked_at}");

    let rules = [json!({ "key": "hash", "operator": "In", "values": ["1"] })];
    let rule = json!({ "matchExpressions": rules });
    let (seen, _) = concerned(&bench, rule);
    assert_eq!(seen, ["another-s", "free", "let-go", "let-go-and-ours-again", "m"]);
    let (seen, _) = concerned(&bench, json!({}));
    assert_eq!(seen, ["let-go", "let-go-and-ours-again", "m"], "an empty one selects nothing");
    put(machines, free("free", &json!({ "app": "a" }), &json!({})));
    let (seen, _) = concerned(&bench, json!({ "matchLabels": ours }));
    assert_eq!(seen, ["let-go", "let-go-and-ours-again", "m"]);
}

/// The list is what shows the other one, and an API server that is busy with a burst answers it late.
#[tokio::test(start_paused = true)]
async fn what_a_set_created_is_its_own_also_if_the_list_for_the_rest_fails() {
    let bench = Bench::new();
    put(&bench.stores.sets, serde_json::to_value(set()).unwrap());
    let sets = Sets { handover: Handover::over(), ..controller(&bench) };
    let name = ObjectName::new("default", "s");
    sets.pending.confirmed("s", "m");
    sets.pending.confirmed("s", "n");
    tokio::time::advance(pending::LAG).await;
    put(&bench.stores.machines, json!(machine()));
    assert!(sets.gather(&name).await.is_err(), "this API server lists nothing");
    let mut other = json!(machine());
    (other["metadata"]["name"], other["metadata"]["uid"]) = (json!("n"), json!("n"));
    put(&bench.stores.machines, other);
    let observed = sets.gather(&name).await.unwrap().unwrap();
    assert_eq!(observed.facts.foreign, None);
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

/// INV-13, INV-14: what is not adopted has no set, and is not there to be chosen among.
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

#[tokio::test(start_paused = true)]
async fn a_machine_counts_as_stale_if_its_health_failed_and_it_was_deleted_for_that() {
    for (phase, operation, refused, stale) in [
        ("Failed", "HealthCheck", 0, 1),
        ("Failed", "Create", 0, 0),
        ("Running", "HealthCheck", 0, 0),
        ("Failed", "HealthCheck", 403, 0),
    ] {
        let bench = if refused == 0 { Bench::new() } else { Bench::new().refusing(refused) };
        let status = json!({
            "currentStatus": { "phase": phase }, "lastOperation": { "type": operation }
        });
        let machine = Machine { status: serde_json::from_value(status).unwrap(), ..machine() };
        let victim = Victim { machine: Arc::new(machine), cause: Cause::Surplus };
        let sets = controller(&bench);
        assert_eq!(sets.delete(&set(), &[victim]).await.is_ok(), refused == 0);
        assert_eq!(sets.metrics.stale.get(), stale, "{phase} {operation} {refused}");
    }
}

/// What the first creation is refused for, the next hundred are refused for as well.
#[tokio::test(start_paused = true)]
async fn machines_are_created_in_batches_that_double_until_one_of_a_batch_is_refused() {
    for (accepted, tried) in [(0, 1), (1, 3), (2, 3), (3, 7), (6, 7), (7, 15), (100, 20)] {
        let bench = Bench::new().refusing_after(accepted, 403);
        let names = (0..20).map(|number| format!("s-{number}")).collect();
        let created = controller(&bench).create(&set(), names).await;
        assert_eq!(created.is_ok(), accepted == 100);
        assert_eq!(bench.writes().len(), tried, "{accepted} are accepted");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_an_event_and_the_reason_of_condition_replica_failure() {
    let victim = Victim { machine: Arc::new(machine()), cause: Cause::Surplus };
    let cases = [
        (Plan { create: 5, ..Plan::default() }, "POST", "FailedCreate"),
        (Plan { delete: vec![victim], ..Plan::default() }, "DELETE", "FailedDelete"),
    ];
    for (plan, method, reason) in cases {
        let bench = Bench::new().refusing(403).having(serde_json::to_value(set()).unwrap());
        let (recorder, events) = bench.recorder_and_writer();
        let sets = Sets { recorder, ..controller(&bench) };
        let done = sets.carry_out(&facts(), &plan).await.unwrap();
        let tried = bench.writes().iter().filter(|(path, _)| path.starts_with(method)).count();
        assert_eq!(tried, 1, "the first batch");
        let observed = Observed { facts: facts(), again: RESYNC };
        // This API server refuses the status as well.
        sets.write_status(observed, plan, done).await.unwrap_err();
        let (_, written) = bench.writes().pop().unwrap();
        let shown = &written["status"]["machineSetCondition"][0];
        let shown = ["type", "status", "reason"].map(|field| shown[field].as_str().unwrap());
        assert_eq!(shown, ["ReplicaFailure", "True", reason]);
        assert_eq!(bench.told(events).await, [reason]);
    }
}

/// Its Machines may be gone before the freeze is looked at, and no event would say why.
#[tokio::test(start_paused = true)]
async fn a_set_that_was_scaled_far_down_deletes_nothing_before_it_is_frozen() {
    for (frozen, deleted) in [(false, 0), (true, 4)] {
        let bench = Bench::new();
        let mut scaled = serde_json::to_value(set()).unwrap();
        scaled["spec"]["replicas"] = json!(2);
        if frozen {
            scaled["metadata"]["labels"] = json!({ "freeze": "True" });
        }
        put(&bench.stores.sets, scaled.clone());
        let machines: Vec<Machine> = (0..6)
            .map(|number| {
                let mut one = serde_json::to_value(machine()).unwrap();
                one["metadata"]["name"] = json!(format!("m{number}"));
                one["metadata"]["uid"] = json!(format!("m{number}"));
                put(&bench.stores.machines, one.clone());
                serde_json::from_value(one).unwrap()
            })
            .collect();
        let victim =
            |machine: Machine| Victim { machine: Arc::new(machine), cause: Cause::Surplus };
        let plan =
            Plan { delete: machines.into_iter().take(4).map(victim).collect(), ..Plan::default() };
        let facts =
            Snapshot { set: Arc::new(serde_json::from_value(scaled.clone()).unwrap()), ..facts() };
        let bench = bench.having(scaled);
        let done = controller(&bench).carry_out(&facts, &plan).await;
        let deletions = bench.writes().iter().filter(|(it, _)| it.starts_with("DELETE")).count();
        assert_eq!((done.is_ok(), deletions), (frozen, deleted), "{done:?}");
    }
}

#[tokio::test]
async fn a_machine_that_could_not_be_read_as_the_term_began_is_no_other_process_s_once_it_can() {
    let mut broken = json!(machine());
    broken["spec"]["class"] = json!(5);
    let bench = Bench::new().having(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineList", "metadata": {},
        "items": [broken]
    }));
    put(&bench.stores.sets, json!(set()));
    let sets = controller(&bench);
    let foreign = async || {
        sets.gather(&ObjectName::new("default", "s")).await.unwrap().unwrap().facts.foreign
    };
    assert_eq!(foreign().await, None);
    // So many are gone that they are forgotten.
    let broken = Unreadable { meta: machine().metadata, why: "it is broken".to_owned() };
    bench.stores.machines.skip(None, Seen::Changed, &broken);
    (0..1000).for_each(|at| sets.roll.lock().was_there("default", &format!("gone-{at}")));
    assert_eq!(foreign().await, None);
    assert_eq!(sets.roll.lock().len(), 1);
    put(&bench.stores.machines, json!(machine()));
    assert_eq!(foreign().await, None, "it was there");
    let mut other = json!(machine());
    other["metadata"]["name"] = json!("other");
    put(&bench.stores.machines, other);
    assert!(foreign().await.is_some());
}
