use jiff::Timestamp;
use ostler_lifecycle::foreign::Foreign;
use ostler_lifecycle::set::{
    BURST, Blind, Blocker, FOREIGN, Failures, UNREADABLE, decide as plan, gathers, status,
};
use serde_json::{Value, json};

use crate::set::objects::{decide, deleting, machine, running, set, snapshot, victims, with_phase};

#[test]
fn a_set_creates_what_is_missing_and_deletes_what_is_too_much() {
    for (replicas, there, create, delete) in
        [(3, 0, 3, 0), (3, 2, 1, 0), (3, 3, 0, 0), (3, 5, 0, 2), (0, 3, 0, 3), (250, 0, BURST, 0)]
    {
        let plan = decide(set(replicas, json!({})), running(there));
        assert_eq!((plan.create, plan.delete.len()), (create, delete), "{replicas} of {there}");
    }
}

/// Also #425: a Machine on its way out does not count as present.
#[test]
fn machines_that_are_being_deleted_are_replaced_and_count_against_the_surplus() {
    let mut all = running(2);
    all.push(deleting("x"));
    assert_eq!(decide(set(3, json!({})), all.clone()).create, 1);
    let plan = decide(set(2, json!({})), all.clone());
    assert!(plan.delete.is_empty(), "{:?}", victims(&plan));
    assert_eq!(victims(&decide(set(1, json!({})), all)), ["m0"]);
}

#[test]
fn a_slow_drain_never_makes_it_delete_more() {
    let mut all = running(3);
    all.extend(["x", "y", "z"].map(deleting));
    assert!(decide(set(3, json!({})), all).is_idle());
}

#[test]
fn no_pass_deletes_more_than_a_hundred() {
    let many: Vec<_> = (0..300).map(|index| machine(&format!("m{index}"), json!({}))).collect();
    assert_eq!(decide(set(0, json!({})), many).delete.len(), BURST);
}

/// #82, #86: a set that was frozen while it was scaled in deleted no more.
#[test]
fn a_frozen_set_creates_nothing_and_deletes() {
    let frozen =
        |replicas| set(replicas, json!({ "metadata": { "labels": { "freeze": "True" } } }));
    let plan = decide(frozen(3), running(1));
    assert_eq!((plan.create, plan.blocker), (0, Some(Blocker::Frozen)));
    assert_eq!(decide(frozen(1), running(3)).delete.len(), 2);
    let thawed = set(3, json!({ "metadata": { "labels": { "freeze": "False" } } }));
    assert_eq!(decide(thawed, running(1)).create, 2);
}

#[test]
fn a_set_whose_scale_up_is_disabled_creates_nothing() {
    let labels = json!({ "node.machine.sapcloud.io/scale-up-disabled": "" });
    let plan = decide(set(3, json!({ "metadata": { "labels": labels } })), running(1));
    assert_eq!((plan.create, plan.blocker), (0, Some(Blocker::ScaleUpDisabled)));
}

#[test]
fn a_failed_machine_is_deleted_before_it_is_replaced() {
    let mut all = running(2);
    all.push(with_phase("bad", "Failed"));
    let plan = decide(set(3, json!({})), all);
    assert_eq!((plan.create, victims(&plan)), (0, vec!["bad"]));
    let mut next = running(2);
    next.push(deleting("bad"));
    let plan = decide(set(3, json!({})), next);
    assert_eq!((plan.create, victims(&plan)), (1, vec![]));
}

#[test]
fn failed_machines_go_also_while_there_are_too_few_or_nothing_is_created() {
    let mut all = running(1);
    all.push(with_phase("bad", "Failed"));
    for labels in [json!({}), json!({ "freeze": "True" })] {
        let plan = decide(set(5, json!({ "metadata": { "labels": labels } })), all.clone());
        assert_eq!(victims(&plan), ["bad"], "{labels}");
    }
}

#[test]
fn a_machine_that_was_just_handed_over_makes_no_other_one_go() {
    let handed = json!({ "node.machine.sapcloud.io/update-result": "successful" });
    let mut all = running(2);
    all.push(machine("h", json!({ "metadata": { "labels": handed } })));
    assert!(decide(set(2, json!({})), all.clone()).is_idle());
    assert_eq!(victims(&decide(set(1, json!({})), all)), ["m0"], "and is none that goes");
}

/// CAPI #13649.
#[test]
fn nothing_is_created_or_chosen_while_its_own_writes_are_not_seen() {
    for blind in [Blind::OwnWrites, Blind::Predecessor] {
        for replicas in [0, 3] {
            let mut snap = snapshot(set(replicas, json!({})), running(1));
            snap.blind = Some(blind.clone());
            assert!(plan(&snap).is_idle(), "{blind:?} {replicas}");
        }
    }
}

#[test]
fn a_machine_that_cannot_be_read_may_be_one_of_the_set_and_stops_creation_only() {
    let mut snap = snapshot(set(3, json!({})), running(1));
    let blind = Blind::Unreadable("Machine default/x cannot be read: it is broken".to_owned());
    snap.blind = Some(blind.clone());
    let held = plan(&snap);
    assert_eq!((held.create, held.blocker.clone()), (0, Some(Blocker::Blind(blind.clone()))));
    let told = status(&snap.set, &held, &Failures::default(), snap.now).conditions.remove(0);
    assert_eq!(told.reason.as_deref(), Some(UNREADABLE));
    assert!(told.message.is_some_and(|text| text.contains("Machine default/x")));
    let mut snap = snapshot(set(0, json!({})), running(1));
    snap.blind = Some(blind);
    assert_eq!(plan(&snap).delete.len(), 1);
}

#[test]
fn a_creation_without_an_answer_is_repeated_under_its_name_and_counts() {
    let mut snap = snapshot(set(3, json!({})), running(1));
    snap.unanswered = vec!["s-a".into()];
    let repeated = plan(&snap);
    assert_eq!((repeated.create, repeated.repeat), (1, vec!["s-a".to_owned()]));
    snap.set = set(1, json!({})).into();
    assert!(plan(&snap).is_idle(), "nothing is repeated that is not wanted any more");
}

#[test]
fn a_set_that_another_process_runs_too_creates_nothing_and_says_what_to_do() {
    let appeared = Foreign::Appeared { machine: "m9".into(), until: Timestamp::MAX };
    let named = Foreign::Named("mcm".into());
    for (foreign, replicas, victims, says) in [
        (&appeared, 3, 0, Some("machine m9 was made by another process")),
        (&appeared, 2, 0, Some("ostler.dev/run-by")),
        (&appeared, 1, 1, Some("ostler.dev/run-by")),
        (&named, 3, 0, Some("mcm runs this set")),
        (&named, 2, 0, None),
        (&named, 1, 0, None),
    ] {
        let mut snap = snapshot(set(replicas, json!({})), running(2));
        snap.foreign = Some(foreign.clone());
        let plan = plan(&snap);
        assert_eq!((plan.create, plan.delete.len()), (0, victims), "{foreign:?} {replicas}");
        let status = status(&snap.set, &plan, &Failures::default(), snap.now);
        let said = status.conditions.iter().find(|it| it.reason.as_deref() == Some(FOREIGN));
        let said = said.and_then(|it| it.message.as_deref());
        assert_eq!(said.is_some(), says.is_some(), "{foreign:?} {replicas}");
        assert!(said.unwrap_or_default().contains(says.unwrap_or_default()), "{said:?}");
    }
}

/// CAPI #14216: a webhook takes the labels from each new Machine.
#[test]
fn machines_that_lose_their_labels_are_not_replaced_without_end() {
    let one_released = |index: usize| {
        let metadata = json!({
            "labels": { "app": null }, "ownerReferences": null,
            "annotations": { "ostler.dev/released-by": "set-uid" }
        });
        machine(&format!("one_released{index}"), json!({ "metadata": metadata }))
    };
    let mut created = 0;
    let mut released = Vec::new();
    for _ in 0..100 {
        let plan = decide(set(3, json!({})), released.clone());
        if plan.create == 0 {
            assert_eq!(plan.blocker, Some(Blocker::LabelDrift(released.len())));
            break;
        }
        released.extend((created..created + plan.create).map(one_released));
        created += plan.create;
    }
    assert!(created <= 2 * 3 + 2, "{created} were created");
    assert_eq!(
        decide(set(3, json!({})), vec![one_released(0)]).create,
        3,
        "a single one is replaced"
    );
}

/// One by one: each Machine is released in the pass that creates the next Machine.
#[test]
fn a_released_machine_counts_in_that_very_pass() {
    let drifting = |name: &str| machine(name, json!({ "metadata": { "labels": { "app": null } } }));
    let one_released = |index: usize| {
        let annotations = json!({ "ostler.dev/released-by": "set-uid" });
        let metadata = json!({
            "labels": { "app": null }, "ownerReferences": null, "annotations": annotations
        });
        machine(&format!("one_released{index}"), json!({ "metadata": metadata }))
    };
    for (released, create) in [(4, 1), (5, 0)] {
        let mut all = running(2);
        all.push(drifting("d"));
        all.extend((0..released).map(one_released));
        let plan = decide(set(3, json!({})), all);
        assert_eq!((plan.release.len(), plan.create), (1, create), "{released}");
    }
}

#[test]
fn a_large_set_gathers_changes_of_its_machines_and_a_small_one_does_not() {
    let table =
        [(0, 3, 0), (9, 3, 0), (100, 0, 10), (0, 1000, 100), (1000, 5, 100), (100_000, 0, 250)];
    for (replicas, machines, milliseconds) in table {
        let set = set(replicas, json!({ "status": { "replicas": machines } }));
        let time = gathers(&set).unwrap_or_default();
        assert_eq!(time.as_millis(), milliseconds, "{replicas}, {machines}");
    }
}

#[test]
fn a_set_without_a_number_is_filled_in_first_and_nothing_else_is_done() {
    let absent =
        |metadata: Value| set(0, json!({ "metadata": metadata, "spec": { "replicas": null } }));
    let min = "machine.sapcloud.io/cluster-api-autoscaler-node-group-min-size";
    let owner = json!([{
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "d",
        "uid": "d", "controller": true
    }]);
    for (metadata, expected) in [
        (json!({}), 0),
        (json!({ "annotations": { (min): "1" } }), 3),
        // It carries the annotations of its deployment, and what is absent is the 0 of a client in Go.
        (json!({ "annotations": { (min): "1" }, "ownerReferences": owner }), 0),
    ] {
        let plan = decide(absent(metadata.clone()), running(3));
        let filled = plan.fill.clone().unwrap_or_else(|| panic!("{metadata}"));
        assert_eq!(filled.replicas, expected, "{metadata}: {}", filled.note);
        assert!(plan.delete.is_empty() && plan.create == 0, "{metadata}");
    }
}

#[test]
fn the_number_of_a_set_is_not_filled_in_while_its_machines_are_not_all_seen() {
    let min = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    let change =
        json!({ "metadata": { "annotations": { (min): "1" } }, "spec": { "replicas": null } });
    let mut snapshot = snapshot(set(0, change), running(2));
    snapshot.blind = Some(Blind::OwnWrites);
    let blind = plan(&snapshot);
    assert!(blind.is_idle() && blind.blocker.is_some(), "{blind:?}");
    snapshot.blind = None;
    snapshot.unanswered = vec!["s-new".to_owned()];
    assert_eq!(plan(&snapshot).fill.unwrap().replicas, 3, "one may be there already");
}
