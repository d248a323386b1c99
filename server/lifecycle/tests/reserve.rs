//! MachineReserves: the number of ready Machines, the deletions, and the shape of the Machines.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use json_patch::merge;
use ostler_api::names::annotation::RESERVE_TEMPLATE;
use ostler_api::{Machine, MachineDeployment, MachineReserve, MachineSet};
use ostler_lifecycle::reserve::{
    Cause, Decision, ReserveTarget, Snapshot, decide, is_given, is_in_reserve, plan,
};
use ostler_lifecycle::selector;
use ostler_lifecycle::set::Blind;
use ostler_lifecycle::write::{Object, Part, Report as _, Tried, Verb};
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn reserve(replicas: Value, change: Value) -> MachineReserve {
    let mut reserve = json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
        "metadata": { "name": "r", "namespace": "default", "uid": "r-uid", "generation": 1 },
        "spec": { "targetRef": { "kind": "MachineDeployment", "name": "d" }, "replicas": replicas }
    });
    merge(&mut reserve, &change);
    serde_json::from_value(reserve).unwrap()
}

fn deployment(replicas: i32, change: Value) -> MachineDeployment {
    let mut deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "d", "namespace": "default", "uid": "d-uid" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "a" } },
            "strategy": { "type": "Recreate" },
            "template": {
                "metadata": { "labels": {
                    "app": "a", "name": "d", "team": "t", "cluster.x-k8s.io/cluster-name": "k"
                } },
                "spec": { "class": { "kind": "MachineClass", "name": "c" } }
            }
        }
    });
    merge(&mut deployment, &change);
    serde_json::from_value(deployment).unwrap()
}

fn snapshot(
    reserve: MachineReserve,
    target: ReserveTarget,
    machines: Vec<Arc<Machine>>,
) -> Snapshot {
    Snapshot {
        reserve: Arc::new(reserve),
        target,
        has_class: true,
        machines,
        given: 0,
        has: 1_000,
        unanswered: Vec::new(),
        blind: None,
        seed: 0,
        again: Duration::from_mins(10),
        now: now(),
    }
}

fn for_deployment(deployment: MachineDeployment) -> ReserveTarget {
    ReserveTarget::Deployment(Arc::new(deployment), Vec::new())
}

/// What the first pass over a reserve of one makes, as the API server would have it: Running.
fn made(target: &ReserveTarget, effect: Value) -> Machine {
    let reserve = reserve(json!(1), json!({ "spec": { "taintEffect": effect } }));
    let plan = plan(&snapshot(reserve, target.clone(), Vec::new()));
    let batch = plan.writes.iter().find(|it| it.part == Part::Create).unwrap();
    let Object::Machine(machine) = &batch.writes[0].of else { panic!("{batch:?}") };
    machine.as_ref().clone()
}

/// So many of them, `m0` the oldest.
fn ready(target: &ReserveTarget, count: usize) -> Vec<Arc<Machine>> {
    let one = json!(made(target, Value::Null));
    let machine = |index: usize| {
        let mut it = one.clone();
        let age = i64::try_from(1_000 - index).unwrap();
        let change = json!({
            "metadata": {
                "name": format!("m{index}"), "uid": format!("u{index}"),
                "creationTimestamp": now() - jiff::SignedDuration::from_mins(age)
            },
            "status": { "currentStatus": { "phase": "Running" } }
        });
        merge(&mut it, &change);
        Arc::new(serde_json::from_value(it).unwrap())
    };
    (0..count).map(machine).collect()
}

fn going(decision: &Decision) -> Vec<(&str, Cause)> {
    decision.delete.iter().map(|(machine, cause)| (machine.name(), *cause)).collect()
}

fn condition(snapshot: &Snapshot, type_: &str) -> Value {
    let status = plan(snapshot).report.unwrap().patch(&Tried::default()).unwrap_or_default();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == type_).unwrap_or_default()
}

#[test]
fn a_number_or_a_share_of_the_targets_replicas_rounded_up_is_kept_ready() {
    for (asked, replicas, made) in [
        (json!(3), 10, 3),
        (json!(0), 10, 0),
        (json!("10%"), 10, 1),
        (json!("10%"), 11, 2),
        (json!("0%"), 11, 0),
        (json!("100%"), 0, 0),
        (json!("200%"), 4, 8),
    ] {
        let target = for_deployment(deployment(replicas, json!({})));
        let decision = decide(&snapshot(reserve(asked.clone(), json!({})), target, Vec::new()));
        assert_eq!(decision.create, made, "{asked} of {replicas}");
    }
}

#[test]
fn target_and_reserve_together_are_no_more_than_an_autoscaler_may_ask_for() {
    for (key, most, replicas, made, limited) in [
        ("cluster.x-k8s.io", "10", 6, 3, "False"),
        ("cluster.x-k8s.io", "10", 8, 2, "True"),
        ("machine.sapcloud.io", "10", 8, 2, "True"),
        ("cluster.x-k8s.io", "10", 12, 0, "True"),
        ("cluster.x-k8s.io", "many", 12, 3, "False"),
    ] {
        let key = format!("{key}/cluster-api-autoscaler-node-group-max-size");
        let change = json!({ "metadata": { "annotations": { key: most } } });
        let target = for_deployment(deployment(replicas, change));
        let snapshot = snapshot(reserve(json!(3), json!({})), target, Vec::new());
        assert_eq!(decide(&snapshot).create, made, "{most} {replicas}");
        let said = condition(&snapshot, "LimitedByMax");
        assert_eq!(said["status"], limited, "{said}");
    }
}

#[test]
fn the_machines_have_the_template_and_nothing_by_which_the_target_would_find_them() {
    let target = for_deployment(deployment(1, json!({})));
    let machine = made(&target, Value::Null);
    let labels = json!({
        "team": "t", "cluster.x-k8s.io/cluster-name": "k", "ostler.dev/reserve": "r"
    });
    assert_eq!(json!(machine.metadata.labels), labels);
    let facts = target.facts().unwrap();
    assert!(!selector::matches(facts.selector.unwrap(), machine.metadata.labels.as_ref()));
    assert!(is_in_reserve(&machine.metadata));
    assert_eq!(machine.spec.class.name, "c");
    let node = json!(machine.spec.node_template);
    let note = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    assert_eq!(node["metadata"]["annotations"][note], "true");
    let taint = json!([{ "key": "ostler.dev/reserve", "effect": "NoSchedule" }]);
    assert_eq!(node["spec"]["taints"], taint);
    let other = json!(made(&target, json!("NoExecute")).spec.node_template);
    assert_eq!(other["spec"]["taints"][0]["effect"], "NoExecute");
}

#[test]
fn a_reserve_that_is_lowered_loses_its_newest() {
    let target = for_deployment(deployment(3, json!({})));
    let snapshot = snapshot(reserve(json!(1), json!({})), target.clone(), ready(&target, 3));
    let decision = decide(&snapshot);
    assert_eq!(going(&decision), [("m2", Cause::Surplus), ("m1", Cause::Surplus)]);
}

#[test]
fn one_whose_instance_the_infrastructure_ends_is_replaced() {
    let target = for_deployment(deployment(3, json!({})));
    let mut machines = ready(&target, 2);
    let mut ends = json!(*machines[0]);
    let notice = json!({ "reason": "TerminationNotice", "replaces": true });
    merge(&mut ends, &json!({ "status": { "instanceNotice": notice } }));
    machines[0] = Arc::new(serde_json::from_value(ends).unwrap());
    let decision = decide(&snapshot(reserve(json!(2), json!({})), target, machines));
    assert_eq!(going(&decision), [("m0", Cause::TerminationNotice)]);
    assert_eq!(decision.create, 1);
}

#[test]
fn with_another_template_the_whole_reserve_is_made_anew_at_once() {
    let old = for_deployment(deployment(3, json!({})));
    let edit = json!({ "spec": { "template": { "spec": { "class": { "name": "other" } } } } });
    let new = for_deployment(deployment(3, edit));
    let snapshot = snapshot(reserve(json!(2), json!({})), new, ready(&old, 2));
    let decision = decide(&snapshot);
    assert_eq!(going(&decision), [("m0", Cause::Outdated), ("m1", Cause::Outdated)]);
    assert_eq!((decision.create, decision.ready, decision.current), (2, 0, 0));
    let parts: Vec<_> = plan(&snapshot).writes.iter().map(|it| (it.part, it.after)).collect();
    let expected =
        [(Part::Confirm, None), (Part::Delete, None), (Part::Create, Some(Part::Delete))];
    assert_eq!(parts, expected);
}

#[test]
fn what_needs_no_other_template_is_taken_over_and_the_node_stays_closed() {
    let old = for_deployment(deployment(3, json!({})));
    let edit = json!({ "spec": { "template": { "spec": { "nodeTemplate": {
        "metadata": { "labels": { "a": "b" } }
    } } } } });
    let new = for_deployment(deployment(3, edit));
    let decision = decide(&snapshot(reserve(json!(1), json!({})), new, ready(&old, 1)));
    assert_eq!((decision.delete.len(), decision.create), (0, 0));
    let patch = json!({ "spec": { "nodeTemplate": { "metadata": { "labels": { "a": "b" } } } } });
    assert_eq!(decision.update[0].1, patch);
}

#[test]
fn a_reserve_follows_the_set_of_a_paused_deployment_until_that_goes_on() {
    let old = deployment(3, json!({}));
    let set = |template: &MachineDeployment| {
        Arc::new(MachineSet::new(
            "s",
            ostler_api::machine_set::MachineSetSpec {
                template: template.spec.template.clone(),
                ..Default::default()
            },
        ))
    };
    let edit = |paused: bool| {
        let template = json!({ "spec": { "class": { "name": "other" } } });
        deployment(3, json!({ "spec": { "paused": paused, "template": template } }))
    };
    let machines = ready(&for_deployment(old.clone()), 1);
    for (paused, outdated) in [(true, 0), (false, 1)] {
        let target = ReserveTarget::Deployment(Arc::new(edit(paused)), vec![set(&old)]);
        let decision = decide(&snapshot(reserve(json!(1), json!({})), target, machines.clone()));
        assert_eq!(decision.delete.len(), outdated, "{paused}");
    }
}

#[test]
fn nothing_is_refilled_while_the_target_is_frozen_and_what_is_ready_stays() {
    let target = for_deployment(deployment(3, json!({})));
    let frozen = json!({ "metadata": { "labels": { "freeze": "True" } } });
    let frozen = for_deployment(deployment(3, frozen));
    let snapshot = snapshot(reserve(json!(3), json!({})), frozen, ready(&target, 1));
    let decision = decide(&snapshot);
    assert_eq!((decision.create, decision.delete.len(), decision.ready), (0, 0, 1));
    assert_eq!(condition(&snapshot, "Ready")["reason"], "TargetFrozen");
}

#[test]
fn the_machines_of_a_target_that_is_gone_or_going_go() {
    let target = for_deployment(deployment(3, json!({})));
    let at = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" } });
    for gone in [ReserveTarget::Gone, for_deployment(deployment(3, at))] {
        let snapshot = snapshot(reserve(json!(2), json!({})), gone, ready(&target, 2));
        let decision = decide(&snapshot);
        assert_eq!(going(&decision), [("m0", Cause::TargetGone), ("m1", Cause::TargetGone)]);
        assert_eq!(decision.create, 0);
        assert_eq!(condition(&snapshot, "Valid")["reason"], "TargetNotFound");
    }
    let unknown = ReserveTarget::Unknown("it cannot be read".to_owned());
    let decision = decide(&snapshot(reserve(json!(2), json!({})), unknown, ready(&target, 2)));
    assert_eq!((decision.create, decision.delete.len()), (0, 0), "it may be there");
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_made_or_deleted() {
    let selects_all = json!({ "spec": {
        "selector": { "matchLabels": { "app": null, "team": null }, "matchExpressions": [
            { "key": "absent", "operator": "DoesNotExist" }
        ] }
    } });
    let no_replicas = json!({ "spec": { "replicas": null } });
    for (asked, of_reserve, of_target, reason, part) in [
        (json!("ten"), json!({}), json!({}), "ValidationFailed", "spec.replicas is \"ten\""),
        (json!(-1), json!({}), json!({}), "ValidationFailed", "spec.replicas is -1"),
        (json!("%"), json!({}), json!({}), "ValidationFailed", "spec.replicas is \"%\""),
        (Value::Null, json!({}), json!({}), "ValidationFailed", "spec.replicas is null"),
        (json!(1), json!({}), selects_all, "TargetRefused", "selects machines in reserve"),
        (
            json!(1),
            json!({}),
            json!({ "spec": { "template": { "spec": { "class": { "name": "" } } } } }),
            "TargetRefused",
            "class.name is missing",
        ),
        (json!(1), json!({}), no_replicas, "TargetUnknown", "not filled in"),
    ] {
        let good = for_deployment(deployment(3, json!({})));
        let target = for_deployment(deployment(3, of_target));
        let snapshot = snapshot(reserve(asked, of_reserve), target, ready(&good, 2));
        let decision = decide(&snapshot);
        assert_eq!((decision.create, decision.delete.len()), (0, 0), "{part}");
        let said = condition(&snapshot, "Valid");
        assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!(reason)), "{said}");
        assert!(said["message"].as_str().unwrap().contains(part), "{said}");
        let [told] = &plan(&snapshot).events[..] else { panic!("{part}") };
        assert!(told.warning && told.message.contains(part), "{told:?}");
    }
    let target = for_deployment(deployment(3, json!({})));
    let without =
        Snapshot { has_class: false, ..snapshot(reserve(json!(1), json!({})), target, vec![]) };
    assert_eq!(condition(&without, "Valid")["reason"], "ClassNotFound");
    assert_eq!(decide(&without).create, 0);
}

#[test]
fn a_failed_machine_is_replaced_and_more_that_fail_wait_longer_and_longer() {
    let target = for_deployment(deployment(3, json!({})));
    let mut machines = ready(&target, 2);
    let mut failed = json!(machines[1].as_ref());
    let since = json!({ "phase": "Failed", "lastUpdateTime": "2026-01-01T11:59:00Z" });
    let last = json!({ "type": "Create", "state": "Failed" });
    merge(&mut failed, &json!({ "status": { "currentStatus": since, "lastOperation": last } }));
    machines[1] = Arc::new(serde_json::from_value(failed).unwrap());
    let first = snapshot(reserve(json!(2), json!({})), target.clone(), machines.clone());
    let status = plan(&first).report.unwrap().patch(&Tried::default()).unwrap();
    assert!(!status["replacementRetry"].is_null(), "{status}");
    assert_eq!(going(&decide(&first)), [], "the status says so first");
    let reserve = reserve(json!(2), json!({ "status": status }));
    let later = Snapshot {
        now: "2026-01-01T13:00:00Z".parse().unwrap(),
        ..snapshot(reserve, target, machines)
    };
    let decision = decide(&later);
    assert_eq!((going(&decision), decision.create), (vec![("m1", Cause::Failed)], 1));
}

#[test]
fn what_may_have_been_made_is_repeated_and_nothing_is_made_while_not_all_is_seen() {
    let target = for_deployment(deployment(3, json!({})));
    let one = snapshot(reserve(json!(2), json!({})), target, Vec::new());
    let unanswered = Snapshot { unanswered: vec!["r-x".to_owned()], ..one.clone() };
    let decision = decide(&unanswered);
    assert_eq!((decision.repeat, decision.create), (vec!["r-x".to_owned()], 1));
    let blind = Snapshot { blind: Some(Blind::OwnWrites), ..one };
    assert_eq!(decide(&blind).create, 0);
}

#[test]
fn a_machine_that_left_for_a_set_was_given_whoever_has_it_now_and_counts_once() {
    let target = for_deployment(deployment(3, json!({})));
    let owned = |kind: &str, uid: &str, reserve: Value| -> Machine {
        let owner = json!([{
            "apiVersion": "v1", "kind": kind, "name": uid, "uid": uid, "controller": true
        }]);
        let owner = if kind.is_empty() { Value::Null } else { owner };
        let mut it = json!(ready(&target, 1)[0].as_ref());
        let labels = json!({ "ostler.dev/reserve": reserve });
        merge(&mut it, &json!({ "metadata": { "ownerReferences": owner, "labels": labels } }));
        serde_json::from_value(it).unwrap()
    };
    let status = json!({ "given": 4, "machines": ["m0", "m1"] });
    let reserve = reserve(json!(0), json!({ "status": status }));
    for (machine, given) in [
        (owned("MachineReserve", "r-uid", json!("r")), false),
        (owned("MachineSet", "s", Value::Null), true),
        (owned("", "", Value::Null), true),
        (owned("", "", json!("r")), false),
    ] {
        assert_eq!(is_given(&machine, &reserve), given, "{machine:?}");
    }
    let snapshot = Snapshot { given: 1, ..snapshot(reserve, target, Vec::new()) };
    let status = plan(&snapshot).report.unwrap().patch(&Tried::default()).unwrap();
    assert_eq!((&status["given"], &status["machines"]), (&json!(5), &Value::Null));
}

#[test]
fn a_machine_is_named_from_its_creation_on_and_of_many_those_that_sets_take_first() {
    let target = for_deployment(deployment(3, json!({})));
    let named = |snapshot: &Snapshot| {
        let status = plan(snapshot).report.unwrap().patch(&Tried::default()).unwrap();
        let names = status["machines"].as_array().unwrap().clone();
        names.iter().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = snapshot(reserve(json!(1), json!({})), target.clone(), Vec::new());
    let batch = plan(&first).writes.into_iter().find(|it| it.part == Part::Create).unwrap();
    assert_eq!(named(&first), [batch.writes[0].of.name()]);
    let blind =
        Snapshot { unanswered: vec!["r-x".to_owned()], blind: Some(Blind::OwnWrites), ..first };
    assert_eq!(named(&blind), ["r-x"]);
    let mut many = ready(&target, 501);
    let mut pending = json!(many[0].as_ref());
    merge(&mut pending, &json!({ "status": { "currentStatus": { "phase": "Pending" } } }));
    many[0] = Arc::new(serde_json::from_value(pending).unwrap());
    let names = named(&snapshot(reserve(json!(501), json!({})), target, many));
    assert_eq!(names.len(), 500);
    assert!(!names.contains(&"m0".to_owned()), "no set takes it");
}

#[test]
fn surplus_that_a_growing_target_is_about_to_take_stays() {
    let most = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    let target = |replicas| {
        for_deployment(deployment(
            replicas,
            json!({ "metadata": { "annotations": { most: "3" } } }),
        ))
    };
    for (replicas, has, spares, left, goes) in [
        // The target grows to its maximum, and the reserve may have none.
        (3, 2, 1, 1, vec![]),
        (3, 3, 1, 0, vec!["m0"]),
        (3, 1, 3, 2, vec!["m2"]),
        (2, 1, 2, 1, vec![]),
        // Neither fewer than are wanted, nor more for a target that shrinks.
        (1, 4, 3, 0, vec!["m2"]),
    ] {
        let target = target(replicas);
        let machines = ready(&for_deployment(deployment(1, json!({}))), spares);
        let one = snapshot(reserve(json!(3), json!({})), target.clone(), machines);
        let decision = decide(&Snapshot { has, ..one });
        let names: Vec<_> = going(&decision).iter().map(|it| it.0).collect();
        assert_eq!((decision.held, names), (left, goes), "{has} of {replicas}");
    }
    // No set takes a Machine that does not run.
    let mut pending = json!(ready(&target(1), 1)[0].as_ref());
    merge(&mut pending, &json!({ "status": { "currentStatus": { "phase": "Pending" } } }));
    let pending = vec![Arc::new(serde_json::from_value(pending).unwrap())];
    let one = snapshot(reserve(json!(1), json!({})), target(3), pending);
    assert_eq!(going(&decide(&Snapshot { has: 2, ..one })), [("m0", Cause::Surplus)]);
}

#[test]
fn a_reserve_that_is_deleted_makes_none_and_leaves_its_machines_to_the_garbage_collector() {
    let target = for_deployment(deployment(3, json!({})));
    let at = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" } });
    let decision = decide(&snapshot(reserve(json!(5), at), target.clone(), ready(&target, 2)));
    assert_eq!((decision.create, decision.delete.len()), (0, 0));
}

#[test]
fn a_write_of_a_deletion_is_on_condition_of_the_version_so_that_one_that_is_taken_stays() {
    let target = for_deployment(deployment(3, json!({})));
    let plan = plan(&snapshot(reserve(json!(0), json!({})), target.clone(), ready(&target, 1)));
    let batch = plan.writes.iter().find(|it| it.part == Part::Delete).unwrap();
    assert_eq!(batch.writes[0].verb, Verb::Delete);
    assert_eq!(batch.writes[0].only, ostler_lifecycle::write::Only::Seen);
    assert!(ready(&target, 1)[0].annotation(RESERVE_TEMPLATE).is_some());
}
