use std::{collections::BTreeMap, sync::Arc};

use ostler_api::{Machine, names::annotation::LAST_NODE_PRESERVE};
use ostler_lifecycle::set::{Decision, NodeWish, decide as plan};
use serde_json::{Value, json};

use crate::set::objects::{decide, machine, set, snapshot, victims};

const KEY: &str = "node.machine.sapcloud.io/preserve";

fn failed(index: usize, value: Value) -> Arc<Machine> {
    annotated(index, json!({ KEY: value }))
}

fn annotated(index: usize, annotations: Value) -> Arc<Machine> {
    let created = format!("2026-01-01T01:{index:02}:00Z");
    machine(
        &format!("f{index}"),
        json!({
            "metadata": { "creationTimestamp": created, "annotations": annotations },
            "status": { "currentStatus": { "phase": "Failed" } }
        }),
    )
}

fn with_max(max: i32) -> ostler_api::MachineSet {
    set(9, json!({ "spec": { "autoPreserveFailedMachineMax": max } }))
}

/// The annotation that each patch sets, by Machine.
fn marks(plan: &Decision) -> BTreeMap<String, Value> {
    let mark = |(machine, patch): &(Arc<Machine>, Value)| {
        (machine.name().to_owned(), patch["metadata"]["annotations"][KEY].clone())
    };
    plan.patches.iter().map(mark).collect()
}

/// #1008: they went before anyone could examine them.
#[test]
fn the_newest_failed_machines_are_kept_as_far_as_there_is_room() {
    let all: Vec<_> = (0..4).map(|index| failed(index, Value::Null)).collect();
    for (max, kept) in [(0, vec![]), (1, vec!["f3"]), (2, vec!["f2", "f3"])] {
        let plan = decide(with_max(max), all.clone());
        assert_eq!(marks(&plan).into_keys().collect::<Vec<_>>(), kept, "{max}");
        assert_eq!(plan.delete.len(), 4 - kept.len(), "the others are replaced");
    }
}

/// #1059, #1092, #1118: what is counted is what there is, not what a status said.
#[test]
fn the_room_is_counted_in_this_pass() {
    let all = vec![failed(0, json!("auto-preserved")), failed(1, Value::Null)];
    let mut lying = with_max(1);
    lying.status =
        Some(serde_json::from_value(json!({ "autoPreserveFailedMachineCount": 0 })).unwrap());
    let plan = decide(lying, all.clone());
    assert!(marks(&plan).is_empty());
    assert_eq!(victims(&plan), ["f1"]);
    assert_eq!(marks(&decide(with_max(2), all)).into_keys().collect::<Vec<_>>(), ["f1"]);
}

#[test]
fn with_less_room_the_oldest_loses_it() {
    let all: Vec<_> = (0..3).map(|index| failed(index, json!("auto-preserved"))).collect();
    let plan = decide(with_max(1), all);
    let expected = [("f0".to_owned(), Value::Null), ("f1".to_owned(), Value::Null)];
    assert_eq!(marks(&plan), expected.into());
}

#[test]
fn no_machine_is_chosen_that_a_user_decided_about() {
    for value in ["false", "now", "when-failed"] {
        let plan = decide(with_max(5), vec![failed(0, json!(value))]);
        assert!(marks(&plan).is_empty(), "{value}");
        assert_eq!(plan.delete.len(), usize::from(value == "false"), "{value}");
    }
    let plan = decide(with_max(5), vec![failed(0, json!("nonsense"))]);
    assert_eq!(marks(&plan)["f0"], "auto-preserved");
}

#[test]
fn the_node_says_more_than_the_machine_and_an_unreadable_node_keeps_it() {
    let says = |value: &str| Some(NodeWish::Known(Some(value.to_owned())));
    let nothing = Some(NodeWish::Known(None));
    let unread = Some(NodeWish::Unknown);
    for (what, own, last, node, goes) in [
        ("the node keeps it", json!("false"), Value::Null, says("now"), false),
        ("the node refuses", json!("now"), Value::Null, says("false"), true),
        ("the node says nothing", json!("now"), Value::Null, nothing.clone(), false),
        ("the node took back what it said", json!("now"), json!("now"), nothing, true),
        ("there is no node", Value::Null, Value::Null, None, true),
        ("the node cannot be read", Value::Null, Value::Null, unread, false),
    ] {
        let machine = annotated(0, json!({ KEY: own, LAST_NODE_PRESERVE: last }));
        let mut snap = snapshot(set(1, json!({})), vec![machine]);
        snap.wishes.extend(node.map(|node| ("uid-f0".to_owned(), node)));
        assert_eq!(!plan(&snap).delete.is_empty(), goes, "{what}");
    }
}

#[test]
fn a_preserved_machine_is_kept_until_its_time_is_over() {
    for (until, goes) in [("2026-01-01T12:00:01Z", false), ("2026-01-01T12:00:00Z", true)] {
        let kept = machine(
            "k",
            json!({ "status": { "currentStatus": { "phase": "Failed", "preserveExpiryTime": until } } }),
        );
        assert_eq!(!decide(set(1, json!({})), vec![kept]).delete.is_empty(), goes, "{until}");
    }
}
