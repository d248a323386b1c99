use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{LAG, Snapshot};
use ostler_lifecycle::write::Next;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::bench::{Bench, handed_out, put};
use crate::fleet::Fleet;
use crate::hand::Applied;
use crate::kind::Kind as _;
use crate::metrics::{Leads, register_sets};
use crate::unseen::Effect;
use crate::watch::{Seen, Unreadable};

fn fleet(sets: Sets) -> Fleet<Sets> {
    Fleet(Arc::new(sets))
}

/// Beside a machine controller of another process.
fn controller(bench: &Bench) -> Sets {
    Sets {
        tools: bench.tools(),
        metrics: register_sets(&mut Registry::default(), &bench.stores, &Leads::default()),
        handover: Handover::new(Duration::ZERO),
        freezes: Arc::new(Freezes { tools: bench.tools(), lifted: Mutex::default() }),
        configs: bench.configs(),
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

/// A set of so many Machines, with a selector that fits.
fn wanting(replicas: usize) -> MachineSet {
    let mut set = json!(set());
    set["metadata"]["finalizers"] = json!(["machine.sapcloud.io/machine-controller-manager"]);
    set["spec"] = json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": "a" } },
        "template": {
            "metadata": { "labels": { "app": "a" } },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } }
        }
    });
    serde_json::from_value(set).unwrap()
}

/// A Machine of the set, with `labels` and `change`.
fn labelled(name: &str, labels: &Value, change: &Value) -> Machine {
    let mut machine = json!(machine());
    let meta = &mut machine["metadata"];
    (meta["name"], meta["uid"], meta["labels"]) = (json!(name), json!(name), labels.clone());
    machine["spec"]["class"] = json!({ "kind": "MachineClass", "name": "c" });
    json_patch::merge(&mut machine, change);
    serde_json::from_value(machine).unwrap()
}

fn own(name: &str) -> Machine {
    labelled(name, &json!({ "app": "a" }), &json!({}))
}

/// The snapshot of a pass over a set with these Machines.
fn facts(replicas: usize, machines: Vec<Machine>) -> Snapshot {
    Snapshot {
        class: None,
        set: Arc::new(wanting(replicas)),
        machines: machines.into_iter().map(Arc::new).collect(),
        others: Vec::new(),
        wishes: BTreeMap::new(),
        unanswered: Vec::new(),
        blind: None,
        foreign: None,
        seed: 0,
        spares: Vec::new(),
        taking: Vec::new(),
        zones: Vec::new(),
        copies: None,
        freeze_due: false,
        runs_machines: false,
        again: RESYNC,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// Before an API server that has the set, the writes of a pass.
async fn applied(bench: &Bench, facts: &Snapshot) -> Applied {
    fleet(controller(bench)).execute(facts, &Sets::plan(facts)).await.unwrap()
}

fn count(bench: &Bench, method: &str) -> usize {
    bench.writes().iter().filter(|(path, _)| path.starts_with(method)).count()
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

/// The Machines that a pass over a set with this selector looks at, and how many objects the caches handed out.
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

/// The list shows the foreign Machine, and an API server busy with a burst answers the list late.
#[tokio::test(start_paused = true)]
async fn what_a_set_created_is_its_own_also_if_the_list_for_the_rest_fails() {
    let bench = Bench::new();
    put(&bench.stores.sets, serde_json::to_value(set()).unwrap());
    let sets = Sets { handover: Handover::over(), ..controller(&bench) };
    let name = ObjectName::new("default", "s");
    for name in ["m", "n"] {
        bench.stores.unseen.listed("s", (Effect::Created, name));
    }
    tokio::time::advance(LAG).await;
    put(&bench.stores.machines, json!(machine()));
    assert!(sets.gather(&name).await.is_err(), "this API server lists nothing");
    let mut other = json!(machine());
    (other["metadata"]["name"], other["metadata"]["uid"]) = (json!("n"), json!("n"));
    put(&bench.stores.machines, other);
    let observed = sets.gather(&name).await.unwrap().unwrap();
    assert_eq!(observed.foreign, None);
}

fn having(bench: Bench) -> Bench {
    bench.having(json!(wanting(0)))
}

/// INV-11: the set would have a Machine too many if the user gave the labels back.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_release_was_refused_is_not_replaced_yet() {
    for (bench, created) in [(Bench::new(), 1), (Bench::new().refusing(422), 0)] {
        let bench = having(bench);
        let drifted = labelled("m", &json!({ "app": "b" }), &json!({}));
        let done = applied(&bench, &facts(1, vec![drifted])).await;
        assert_eq!((count(&bench, "POST"), done.failed), (created, created == 0));
    }
}

/// INV-13, INV-14: a Machine that is not adopted has no set, and is no candidate for deletion.
#[tokio::test(start_paused = true)]
async fn nothing_goes_in_a_pass_in_which_an_adoption_was_refused() {
    for (bench, deleted) in [(Bench::new(), 1), (Bench::new().refusing(422), 0)] {
        let bench = having(bench);
        let free = labelled(
            "free",
            &json!({ "app": "a" }),
            &json!({ "metadata": { "ownerReferences": null } }),
        );
        let done = applied(&bench, &facts(1, vec![own("m"), free])).await;
        assert_eq!((count(&bench, "DELETE"), done.failed), (deleted, deleted == 0));
    }
}

/// INV-12, INV-13: the cache may lag, and a victim may have become available or have been released.
#[tokio::test(start_paused = true)]
async fn a_machine_that_changed_since_it_was_chosen_is_looked_at_again() {
    let bench = having(Bench::new().refusing(409));
    let chosen = json!({ "metadata": { "resourceVersion": "7" } });
    let chosen = labelled("m", &json!({ "app": "a" }), &chosen);
    let done = applied(&bench, &facts(0, vec![chosen])).await;
    assert_eq!((done.failed, done.tried.refusal(Part::Delete)), (true, None));
    assert_eq!(bench.writes()[0].1["preconditions"]["resourceVersion"], "7");
}

/// #984: a Machine whose deletion was refused was shown as Terminating, and then no controller deleted it.
#[tokio::test(start_paused = true)]
async fn only_a_machine_whose_deletion_was_accepted_is_shown_as_terminating() {
    for (bench, shown) in [(Bench::new(), true), (Bench::new().refusing(403), false)] {
        let bench = having(bench);
        let done = applied(&bench, &facts(0, vec![own("m")])).await;
        assert_eq!(done.failed, !shown);
        let writes = bench.writes();
        assert!(writes[0].0.starts_with("DELETE"), "{writes:?}");
        let terminating = |(path, sent): &(String, Value)| {
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
        let bench =
            having(if refused == 0 { Bench::new() } else { Bench::new().refusing(refused) });
        let status = json!({ "status": {
            "currentStatus": { "phase": phase }, "lastOperation": { "type": operation }
        } });
        let facts = facts(0, vec![labelled("m", &json!({ "app": "a" }), &status)]);
        let sets = fleet(controller(&bench));
        let done = sets.execute(&facts, &Sets::plan(&facts)).await.unwrap();
        assert_eq!(done.failed, refused != 0);
        assert_eq!(sets.0.metrics.stale.get(), stale, "{phase} {operation} {refused}");
    }
}

/// The refusal of the first creation would also meet the next hundred.
#[tokio::test(start_paused = true)]
async fn machines_are_created_in_batches_that_double_until_one_of_a_batch_is_refused() {
    for (accepted, tried) in [(0, 1), (1, 3), (2, 3), (3, 7), (6, 7), (7, 15), (100, 20)] {
        let bench = having(Bench::new().refusing_after(accepted, 403));
        let done = applied(&bench, &facts(20, Vec::new())).await;
        assert_eq!(done.failed, accepted != 100);
        assert_eq!(bench.writes().len(), tried, "{accepted} are accepted");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_an_event_and_the_reason_of_condition_replica_failure() {
    let cases = [
        (facts(5, Vec::new()), "POST", "FailedCreate"),
        (facts(0, vec![own("m")]), "DELETE", "FailedDelete"),
    ];
    for (facts, method, reason) in cases {
        let bench = having(Bench::new().refusing(403));
        let (recorder, events) = bench.recorder_and_writer();
        let tools = Tools { recorder, ..bench.tools() };
        let sets = fleet(Sets { tools, ..controller(&bench) });
        let plan = Sets::plan(&facts);
        let done = sets.execute(&facts, &plan).await.unwrap();
        assert_eq!(count(&bench, method), 1, "the first batch");
        // The API server refuses the status as well.
        sets.record(facts, plan, done).await.unwrap_err();
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
        let mut scaled = json!(wanting(2));
        if frozen {
            scaled["metadata"]["labels"] = json!({ "freeze": "True" });
        }
        let bench = Bench::new().having(scaled.clone());
        put(&bench.stores.sets, scaled);
        (0..6).for_each(|number| put(&bench.stores.machines, json!(own(&format!("m{number}")))));
        let sets = Sets { handover: Handover::over(), ..controller(&bench) };
        let facts = sets.gather(&ObjectName::new("default", "s")).await.unwrap().unwrap();
        let plan = Sets::plan(&facts);
        assert_eq!(plan.next == Next::After(LAG), !frozen, "{plan:?}");
        fleet(sets).execute(&facts, &plan).await.unwrap();
        assert_eq!(count(&bench, "DELETE"), deleted);
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
    let foreign =
        async || sets.gather(&ObjectName::new("default", "s")).await.unwrap().unwrap().foreign;
    assert_eq!(foreign().await, None);
    // So many Machines are gone that the first are forgotten.
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
