use std::sync::Arc;

use ostler_api::Machine;
use ostler_lifecycle::set::Cause;
use serde_json::{Value, json};

use crate::set::objects::{decide, machine, running, set, victims};

const EARLY: &str = "2026-01-01T10:00:00Z";
const LATE: &str = "2026-01-01T11:00:00Z";

fn scaled_at(replicas: i32, at: Option<&str>) -> ostler_api::MachineSet {
    let key = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";
    let annotations = at.map(|at| json!({ key: at })).unwrap_or_default();
    set(replicas, json!({ "metadata": { "annotations": annotations } }))
}

fn marked(name: &str, priority: Value, at: Value) -> Arc<Machine> {
    machine(
        name,
        json!({ "metadata": { "annotations": {
            "machinepriority.machine.sapcloud.io": priority,
            "machine.sapcloud.io/marked-for-deletion-time": at
        } } }),
    )
}

/// #965, #1078, #1087, autoscaler#159: both orders of arrival delete exactly the marked one.
#[test]
fn the_marked_one_goes_before_and_after_the_replicas_are_lowered() {
    for replicas in [3, 2] {
        let mut all = running(2);
        all.push(marked("chosen", json!("1"), json!(EARLY)));
        let plan = decide(scaled_at(replicas, Some(LATE)), all);
        assert_eq!(victims(&plan), ["chosen"], "{replicas}");
        assert_eq!(plan.delete[0].cause, Cause::Marked);
    }
}

#[test]
fn a_mark_counts_only_with_its_priority_and_not_after_the_last_change_of_replicas() {
    for (what, priority, at, scaled, goes) in [
        ("marked before", json!("1"), json!(EARLY), Some(LATE), true),
        ("marked at the same time", json!("1"), json!(LATE), Some(LATE), true),
        ("marked after it", json!("1"), json!(LATE), Some(EARLY), false),
        ("no scaler lowered anything", json!("1"), json!(EARLY), None, false),
        ("another priority", json!("3"), json!(EARLY), Some(LATE), false),
        ("no mark", json!("1"), Value::Null, Some(LATE), false),
        ("no time", json!("1"), json!("soon"), Some(LATE), false),
        ("no time of the change", json!("1"), json!(EARLY), Some("once"), false),
    ] {
        let mut all = running(2);
        all.push(marked("chosen", priority, at));
        let plan = decide(scaled_at(3, scaled), all);
        assert_eq!(!plan.delete.is_empty(), goes, "{what}");
    }
}

#[test]
fn one_that_is_marked_and_too_much_goes_once_and_alone() {
    let mut all = running(3);
    all.push(marked("chosen", json!("1"), json!(EARLY)));
    assert_eq!(victims(&decide(scaled_at(3, Some(LATE)), all)), ["chosen"]);
}

/// The autoscaler lowers the replicas by the marked Machines: the other Machines were to stay.
#[test]
fn a_marked_or_failed_one_that_ranks_last_goes_and_none_in_its_place() {
    let failed = json!({
        "metadata": { "annotations": { "machinepriority.machine.sapcloud.io": "5" } },
        "status": { "currentStatus": { "phase": "Failed" } }
    });
    for (what, last) in [
        (
            "preserved by a user",
            json!({ "metadata": { "annotations": {
            "machinepriority.machine.sapcloud.io": "1",
            "machine.sapcloud.io/marked-for-deletion-time": EARLY,
            "node.machine.sapcloud.io/preserve": "now"
        } }, "status": { "currentStatus": { "preserveExpiryTime": "2100-01-01T00:00:00Z" } } }),
        ),
        ("failed, with a priority", failed),
    ] {
        let mut all = running(3);
        all.push(machine("last", last));
        assert_eq!(victims(&decide(scaled_at(3, Some(LATE)), all)), ["last"], "{what}");
    }
}
