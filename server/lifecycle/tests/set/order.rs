use std::sync::Arc;

use ostler_api::Machine;
use ostler_lifecycle::set::{Policy, Rank};
use serde_json::{Value, json};

use crate::set::objects::{decide, machine, now, running, set, victims, with_phase};

fn annotated(name: &str, key: &str, value: &str) -> Arc<Machine> {
    machine(name, json!({ "metadata": { "annotations": { key: value } } }))
}

fn preserved(name: &str, value: &str, until: &str) -> Arc<Machine> {
    let annotations = json!({ "node.machine.sapcloud.io/preserve": value });
    let status = json!({ "currentStatus": { "phase": "Failed", "preserveExpiryTime": until } });
    machine(name, json!({ "metadata": { "annotations": annotations }, "status": status }))
}

fn created(name: &str, at: &str) -> Arc<Machine> {
    machine(name, json!({ "metadata": { "creationTimestamp": at } }))
}

/// Each pair: the first goes before the second.
#[test]
fn one_goes_before_the_other() {
    let key = "machinepriority.machine.sapcloud.io";
    let mark = "machine.sapcloud.io/marked-for-deletion-time";
    let (early, late) = ("2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z");
    for (what, first, second) in [
        ("not preserved", with_phase("z", "Running"), preserved("a", "now", late)),
        (
            "preserved by a set",
            preserved("z", "auto-preserved", late),
            preserved("a", "now", early),
        ),
        ("preserved for less", preserved("z", "now", early), preserved("a", "now", late)),
        (
            "whose preservation is over",
            preserved("z", "now", "2026-01-01T11:00:00Z"),
            preserved("a", "now", early),
        ),
        ("lower priority", annotated("z", key, "1"), annotated("a", key, "2")),
        ("negative priority", annotated("z", key, "-1"), annotated("a", key, "1")),
        ("below the default", annotated("z", key, "2"), machine("a", json!({}))),
        ("the default", machine("z", json!({})), annotated("a", key, "4")),
        ("no number is the default", annotated("z", key, "high"), annotated("a", key, "4")),
        (
            "a mark of Cluster API",
            annotated("z", "machine.sapcloud.io/delete-machine", ""),
            annotated("a", key, "2"),
        ),
        ("marked", annotated("z", mark, early), machine("a", json!({}))),
        ("marked earlier", annotated("z", mark, early), annotated("a", mark, late)),
        ("failed", with_phase("z", "Failed"), with_phase("a", "CrashLoopBackOff")),
        ("crashing", with_phase("z", "CrashLoopBackOff"), with_phase("a", "Unknown")),
        ("unknown", with_phase("z", "Unknown"), with_phase("a", "Pending")),
        ("pending", with_phase("z", "Pending"), with_phase("a", "Available")),
        ("new", with_phase("z", ""), with_phase("a", "Available")),
        ("available", with_phase("z", "Available"), with_phase("a", "Running")),
        ("older", created("z", "2026-01-01T01:00:00Z"), created("a", "2026-01-01T02:00:00Z")),
        ("first by name", machine("a", json!({})), machine("z", json!({}))),
        ("priority before phase", annotated("z", key, "1"), with_phase("a", "Failed")),
    ] {
        let rank = |machine: &Machine| Rank::of(machine, Policy::Oldest, now());
        assert!(rank(&first) < rank(&second), "{what}");
    }
}

#[test]
fn no_tie_is_undecided_whatever_the_order_in_which_machines_are_listed() {
    for policy in ["Oldest", "Newest", "Random"] {
        let annotations = json!({ "ostler.dev/delete-policy": policy });
        let chosen = |mut all: Vec<Arc<Machine>>, turn: usize| {
            let count = all.len();
            all.rotate_left(turn % count);
            let set = set(3, json!({ "metadata": { "annotations": annotations } }));
            let plan = decide(set, all);
            let mut names: Vec<_> = victims(&plan).into_iter().map(str::to_owned).collect();
            names.sort();
            names
        };
        // Equal in everything but their names.
        let alike = || (0..8).map(|it| machine(&format!("m{it}"), json!({}))).collect();
        let first = chosen(alike(), 0);
        assert_eq!(first.len(), 5);
        for turn in 1..8 {
            assert_eq!(chosen(alike(), turn), first, "{policy}");
        }
    }
}

#[test]
fn machines_that_are_updated_in_place_are_no_favourite_victims() {
    for phase in ["InPlaceUpdating", "InPlaceUpdateSuccessful", "InPlaceUpdateFailed"] {
        let mut all = running(2);
        all.push(with_phase("u", phase));
        assert_eq!(victims(&decide(set(2, json!({})), all)), ["m0"], "as old, and first by name");
        let older = created("old", "2026-01-01T00:30:00Z");
        let plan = decide(set(1, json!({})), vec![with_phase("u", phase), older]);
        assert_eq!(victims(&plan), ["old"], "{phase}");
    }
}

fn first_victim(policy: Value) -> String {
    let annotations = json!({ "ostler.dev/delete-policy": policy });
    let set = set(4, json!({ "metadata": { "annotations": annotations } }));
    victims(&decide(set, running(5))).join(",")
}

#[test]
fn the_policy_of_the_set_says_which_of_equals_goes() {
    assert_eq!(first_victim(Value::Null), "m0");
    assert_eq!(first_victim(json!("Oldest")), "m0");
    assert_eq!(first_victim(json!("Newest")), "m4");
    assert_eq!(first_victim(json!("Unheard")), "m0");
    assert_eq!(first_victim(json!("Random")), first_victim(json!("Random")));
}
