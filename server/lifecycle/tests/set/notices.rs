//! Machines whose instance the infrastructure will end, and which the set replaces for that.

use ostler_lifecycle::set::Cause;
use serde_json::{Value, json};

use crate::set::objects::{decide, deleting, machine, running, set, victims};

fn announced(name: &str, notice: Value) -> std::sync::Arc<ostler_api::Machine> {
    machine(name, json!({ "status": { "instanceNotice": notice } }))
}

fn ends(name: &str) -> std::sync::Arc<ostler_api::Machine> {
    let reason = "TerminationNotice";
    announced(name, json!({ "reason": reason, "replaces": true }))
}

#[test]
fn a_machine_is_replaced_for_a_notice_while_its_time_is_to_come() {
    let notice = |replaces: bool, at: Option<&str>| {
        let mut notice = json!({ "reason": "TerminationNotice", "replaces": replaces });
        if let Some(at) = at {
            notice["effectiveAt"] = json!(at);
        }
        notice
    };
    for (what, notice, goes) in [
        ("no time is known", notice(true, None), true),
        ("in a minute", notice(true, Some("2026-01-01T12:01:00Z")), true),
        ("the time is over", notice(true, Some("2026-01-01T12:00:00Z")), false),
        ("it is shown alone", notice(false, None), false),
        ("none, or it was called off", Value::Null, false),
    ] {
        let mut all = running(2);
        all.push(announced("spot", notice));
        let plan = decide(set(3, json!({})), all);
        assert_eq!(!plan.delete.is_empty(), goes, "{what}");
        assert!(plan.delete.iter().all(|it| it.cause == Cause::TerminationNotice), "{what}");
    }
}

#[test]
fn all_that_are_announced_go_at_once_and_are_those_that_are_too_many() {
    let all: Vec<_> = ["a", "b", "c"].map(ends).into_iter().chain(running(1)).collect();
    assert_eq!(victims(&decide(set(4, json!({})), all.clone())), ["a", "b", "c"]);
    assert_eq!(victims(&decide(set(2, json!({})), all)), ["a", "b", "c"], "two are too many");
}

#[test]
fn one_is_made_for_each_as_soon_as_it_goes() {
    let all = [running(2), vec![deleting("spot")]].concat();
    let plan = decide(set(3, json!({})), all);
    assert_eq!((plan.create, plan.delete.len()), (1, 0));
}

#[test]
fn one_that_is_preserved_stays_until_its_instance_ends() {
    let kept = json!({ "status": {
        "instanceNotice": { "reason": "TerminationNotice", "replaces": true },
        "currentStatus": { "preserveExpiryTime": "2100-01-01T00:00:00Z" }
    } });
    assert_eq!(victims(&decide(set(1, json!({})), vec![machine("kept", kept)])), [""; 0]);
}
