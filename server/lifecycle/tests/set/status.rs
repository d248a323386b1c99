use ostler_api::MachineSet;
use ostler_lifecycle::set::{Failures, decide as plan, is_news, status};
use serde_json::{Value, json};

use crate::set::objects::{deleting, machine, now, running, set, snapshot, with_phase};

fn written(
    set: MachineSet,
    machines: Vec<std::sync::Arc<ostler_api::Machine>>,
    failures: &Failures,
) -> Value {
    let snap = snapshot(set, machines);
    serde_json::to_value(status(&snap.set, &plan(&snap), failures, now())).unwrap()
}

fn failing(create: &str) -> Failures {
    Failures { create: Some(create.to_owned()), delete: None }
}

#[test]
fn the_numbers_are_upstreams_and_available_machines_are_ready() {
    let mut all = running(2);
    all.extend([with_phase("a", "Available"), with_phase("p", "Pending"), deleting("x")]);
    let until = "2026-01-01T13:00:00Z";
    all.push(machine(
        "kept",
        json!({ "status": {
            "currentStatus": { "phase": "Failed", "preserveExpiryTime": until },
            "lastOperation": { "state": "Failed" }
        } }),
    ));
    all.push(machine(
        "bad",
        json!({
            "spec": { "providerID": "p" },
            "status": { "lastOperation": { "state": "Failed", "description": "d" } }
        }),
    ));
    let spec = json!({ "template": { "metadata": { "labels": { "more": "1" } } } });
    let status = written(set(9, json!({ "spec": spec })), all, &Failures::default());
    let expected = [
        ("replicas", json!(7)),
        ("fullyLabeledReplicas", json!(0)),
        ("readyReplicas", json!(4)),
        ("availableReplicas", json!(4)),
        ("preservedFailedReplicas", json!(1)),
        ("observedGeneration", json!(1)),
        ("selector", json!("app=a")),
        (
            "failedMachines",
            json!([{
                "name": "bad", "providerID": "p", "ownerRef": "s",
                "lastOperation": { "state": "Failed", "description": "d" }
            }]),
        ),
    ];
    for (field, value) in expected {
        assert_eq!(status[field], value, "{field}");
    }
}

#[test]
fn numbers_are_written_also_when_they_are_zero() {
    let status = written(set(0, json!({})), Vec::new(), &Failures::default());
    for field in ["replicas", "readyReplicas", "availableReplicas", "preservedFailedReplicas"] {
        assert_eq!(status[field], 0, "{field}");
    }
}

#[test]
fn a_failure_is_shown_follows_the_error_and_goes_when_it_is_over() {
    let mut one = set(2, json!({}));
    let condition = |status: &Value| status["machineSetCondition"].clone();
    let first = written(one.clone(), Vec::new(), &failing("quota"));
    let expected = json!([{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota",
        "lastTransitionTime": "2026-01-01T12:00:00Z"
    }]);
    assert_eq!(condition(&first), expected);
    one.status = Some(serde_json::from_value(first).unwrap());
    let second = written(one.clone(), Vec::new(), &failing("forbidden"));
    assert_eq!(condition(&second)[0]["message"], "forbidden");
    let over = written(one.clone(), Vec::new(), &Failures::default());
    assert_eq!(condition(&over), Value::Null, "the creation was tried and did not fail");
    let frozen = json!({ "metadata": { "labels": { "freeze": "True" } } });
    let held = MachineSet { status: one.status.clone(), ..set(2, frozen) };
    let held = written(held, Vec::new(), &Failures::default());
    assert_eq!(condition(&held)[0]["reason"], "FailedCreate", "nothing was tried");
}

#[test]
fn an_invalid_set_says_so_until_it_is_valid_and_a_healthy_one_has_no_condition() {
    let invalid = json!({ "spec": { "template": { "spec": { "class": { "name": "" } } } } });
    let status = written(set(1, invalid), Vec::new(), &Failures::default());
    let condition = &status["machineSetCondition"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Valid"), &json!("False")));
    let mut valid = set(0, json!({}));
    valid.status = Some(serde_json::from_value(status).unwrap());
    let status = written(valid, Vec::new(), &Failures::default());
    assert_eq!(status["machineSetCondition"], Value::Null);
}

#[test]
fn conditions_of_other_controllers_stay() {
    let frozen = json!({ "status": { "machineSetCondition": [
        { "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount" }
    ] } });
    let status = written(set(0, frozen), Vec::new(), &Failures::default());
    assert_eq!(status["machineSetCondition"][0]["type"], "Frozen");
}

#[test]
fn a_status_that_says_nothing_new_is_not_written() {
    let mut one = set(2, json!({}));
    let first =
        status(&one, &plan(&snapshot(one.clone(), running(2))), &Failures::default(), now());
    assert!(is_news(&one, &first));
    one.status = Some(first);
    let later = "2026-01-01T15:00:00Z".parse().unwrap();
    let snap = snapshot(one.clone(), running(2));
    let second = status(&one, &plan(&snap), &Failures::default(), later);
    assert!(!is_news(&one, &second), "{second:?}");
}
