use std::sync::Arc;

use ostler_api::MachineSet;
use ostler_lifecycle::set::{decide as plan, owner_reference};
use serde_json::{Value, json};

use crate::set::objects::{decide, deleting, machine, names, running, set, snapshot};

fn orphan(change: Value) -> Arc<ostler_api::Machine> {
    let mut all = json!({ "metadata": { "ownerReferences": null } });
    if let (Some(all), Some(change)) = (all["metadata"].as_object_mut(), change.as_object()) {
        all.extend(change.clone());
    }
    machine("m", all)
}

fn owned_by(uid: &str, controller: bool) -> Value {
    json!([{
        "apiVersion": "v1", "kind": "Other", "name": "o", "uid": uid, "controller": controller
    }])
}

#[test]
fn a_machine_is_kept_adopted_released_or_left_alone() {
    let other_label = json!({ "app": "b" });
    let gone = "2026-01-01T11:00:00Z";
    for (what, machine, expected) in [
        ("its own, and it matches", machine("m", json!({})), "keep"),
        (
            "its own, and it does not match",
            machine("m", json!({ "metadata": { "labels": other_label } })),
            "release",
        ),
        (
            "its own, does not match, and is going anyway",
            machine(
                "m",
                json!({ "metadata": { "labels": other_label, "deletionTimestamp": gone } }),
            ),
            "keep",
        ),
        ("without a controller, and it matches", orphan(json!({})), "adopt"),
        (
            "without a controller, and it does not match",
            orphan(json!({ "labels": other_label })),
            "leave",
        ),
        (
            "without a controller, and it is going",
            orphan(json!({ "deletionTimestamp": gone })),
            "leave",
        ),
        (
            "owned, and without a controller",
            orphan(json!({ "ownerReferences": owned_by("x", false) })),
            "adopt",
        ),
        (
            "controlled by another set",
            orphan(json!({ "ownerReferences": owned_by("x", true) })),
            "leave",
        ),
    ] {
        let plan = decide(set(1, json!({})), vec![machine]);
        let found = match (plan.adopt.len(), plan.release.len(), plan.claimed.len()) {
            (1, 0, 1) => "adopt",
            (0, 1, 0) => "release",
            (0, 0, 1) => "keep",
            _ => "leave",
        };
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn of_two_sets_that_match_an_orphan_the_older_one_gets_it_and_then_the_first_by_name() {
    let younger = json!({ "creationTimestamp": "2026-01-01T00:00:01Z" });
    for (what, other, ours) in [
        (
            "a younger rival",
            json!({ "uid": "o", "name": "a", "creationTimestamp": younger["creationTimestamp"] }),
            true,
        ),
        (
            "an older rival",
            json!({ "uid": "o", "name": "z", "creationTimestamp": "2025-12-31T00:00:00Z" }),
            false,
        ),
        ("as old, later by name", json!({ "uid": "o", "name": "t" }), true),
        ("as old, earlier by name", json!({ "uid": "o", "name": "r" }), false),
        (
            "an older rival that is being deleted",
            json!({
                "uid": "o", "creationTimestamp": "2025-12-31T00:00:00Z",
                "deletionTimestamp": "2026-01-01T11:00:00Z"
            }),
            true,
        ),
    ] {
        let mut snap = snapshot(set(1, json!({})), vec![orphan(json!({}))]);
        snap.others = vec![snap.set.clone(), Arc::new(set(1, json!({ "metadata": other })))];
        assert_eq!(plan(&snap).adopt.len(), usize::from(ours), "{what}");
    }
    let refused = json!({
        "metadata": { "uid": "o", "creationTimestamp": "2025-12-31T00:00:00Z" },
        "spec": { "minReadySeconds": -1 }
    });
    let mut snap = snapshot(set(1, json!({})), vec![orphan(json!({}))]);
    snap.others = vec![snap.set.clone(), Arc::new(set(1, refused))];
    assert_eq!(plan(&snap).adopt.len(), 1, "an older rival that is refused adopts nothing");
    let older = |replicas: i32| {
        let changed = json!({
            "metadata": { "uid": "o", "creationTimestamp": "2025-12-31T00:00:00Z" },
            "status": { "replicas": replicas, "selector": "app=b" }
        });
        Arc::new(set(1, changed))
    };
    for (what, replicas, ours) in [
        ("its selector was changed while it had Machines, so that it adopts nothing", 1, true),
        ("its selector was changed while it had none", 0, false),
    ] {
        let mut snap = snapshot(set(1, json!({})), vec![orphan(json!({}))]);
        snap.others = vec![snap.set.clone(), older(replicas)];
        assert_eq!(plan(&snap).adopt.len(), usize::from(ours), "{what}");
    }
}

#[test]
fn a_set_that_is_being_deleted_adopts_and_releases_nothing() {
    let gone = set(1, json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" } }));
    let drifted = machine("d", json!({ "metadata": { "labels": { "app": "b" } } }));
    let plan = decide(gone, vec![orphan(json!({})), drifted, deleting("x")]);
    assert!(plan.adopt.is_empty() && plan.release.is_empty());
    assert_eq!(names(&plan.claimed), ["d", "x"]);
}

#[test]
fn the_owner_reference_is_upstreams() {
    let reference = serde_json::to_value(owner_reference(&set(1, json!({})))).unwrap();
    let expected = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
        "uid": "set-uid", "controller": true, "blockOwnerDeletion": true
    });
    assert_eq!(reference, expected);
}

#[test]
fn a_selector_that_overlaps_with_that_of_a_strangers_set_is_told_once_for_each_generation() {
    let other = |name: &str, labels: Value, owner: Value| {
        let change = json!({
            "metadata": { "name": name, "uid": name, "ownerReferences": owner },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels } }
            }
        });
        set(1, change)
    };
    let owned = json!([{
        "apiVersion": "v1", "kind": "MachineDeployment", "name": "d", "uid": "d", "controller": true
    }]);
    let told = |own_owner: &Value, generation: i64, others: Vec<MachineSet>| {
        let change = json!({
            "metadata": { "generation": generation, "ownerReferences": own_owner },
            "status": { "observedGeneration": 1 }
        });
        let mut snap = snapshot(set(1, change), running(1));
        snap.others = others.into_iter().map(Arc::new).collect();
        plan(&snap).overlap
    };
    let (same, apart) = (json!({ "app": "a" }), json!({ "app": "y" }));
    let none = json!([]);
    let rival = |owner: &Value| {
        vec![
            other("apart", apart.clone(), none.clone()),
            other("rival", same.clone(), owner.clone()),
        ]
    };
    assert_eq!(told(&none, 2, rival(&none)).as_deref(), Some("rival"));
    assert_eq!(told(&none, 1, rival(&none)), None, "it was told");
    assert_eq!(told(&owned, 2, rival(&none)).as_deref(), Some("rival"));
    assert_eq!(told(&owned, 2, rival(&owned)), None, "sets of one deployment");
}
