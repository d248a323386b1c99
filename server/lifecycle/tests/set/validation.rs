use ostler_lifecycle::set::{broken, decide as plan};
use serde_json::{Value, json};

use crate::set::objects::{decide, machine, running, set, snapshot};

fn rules(change: Value) -> String {
    broken(&set(1, change), false).join("; ")
}

#[test]
fn each_rule_says_what_is_wrong() {
    for (change, words) in [
        (json!({ "spec": { "replicas": -1 } }), "spec.replicas is -1"),
        (json!({ "spec": { "minReadySeconds": -5 } }), "spec.minReadySeconds is -5"),
        (
            json!({ "spec": { "autoPreserveFailedMachineMax": -1 } }),
            "spec.autoPreserveFailedMachineMax is -1",
        ),
        (json!({ "spec": { "selector": null } }), "spec.selector is missing"),
        (json!({ "spec": { "selector": { "matchLabels": null } } }), "would select every Machine"),
        (json!({ "spec": { "template": { "metadata": null } } }), "does not match"),
        (
            json!({ "spec": { "selector": { "matchExpressions": [
                { "key": "app", "operator": "DoesNotExist" }
            ] } } }),
            "does not match",
        ),
        (json!({ "spec": { "template": { "spec": { "class": { "kind": "" } } } } }), "class.kind"),
        (json!({ "spec": { "template": { "spec": { "class": { "name": "" } } } } }), "class.name"),
        (names_recipe(), "configRef names Recipe shared, which is no template"),
    ] {
        let said = rules(change);
        assert!(said.contains(words), "{said:?} lacks {words:?}");
    }
    assert_eq!(rules(json!({})), "");
}

#[test]
fn nothing_is_changed_while_the_spec_is_refused() {
    let invalid =
        set(5, json!({ "spec": { "selector": null }, "metadata": { "finalizers": null } }));
    let plan = decide(invalid, running(2));
    assert!(plan.is_idle() && !plan.broken.is_empty());
    assert_eq!(plan.claimed.len(), 2, "the status still counts them");
}

fn names_recipe() -> Value {
    let config = json!({ "apiVersion": "a.example/v1", "kind": "Recipe", "name": "shared" });
    // The object would be owned although there are data.
    let bootstrap = json!({ "configRef": config, "data": "#!/bin/sh" });
    json!({ "spec": { "template": { "spec": { "bootstrap": bootstrap } } } })
}

#[test]
fn a_template_that_names_a_bootstrap_object_makes_no_machine_and_keeps_those_that_are_there() {
    for wanted in [1, 2, 5] {
        let mut machines = running(2);
        machines[0] =
            machine("failed", json!({ "status": { "currentStatus": { "phase": "Failed" } } }));
        let plan = decide(set(wanted, names_recipe()), machines);
        assert!(plan.is_idle() && plan.broken.len() == 1, "{wanted}: {plan:?}");
    }
}

#[test]
fn an_old_set_whose_template_names_a_bootstrap_object_gets_smaller_for_the_next_template() {
    let of_deployment = |wanted: i32| {
        let mut set = set(wanted, names_recipe());
        let owner = json!([{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "d",
            "uid": "d", "controller": true
        }]);
        set.metadata.owner_references = serde_json::from_value(owner).unwrap();
        set
    };
    for (wanted, goes) in [(0, 2), (1, 1), (2, 0), (5, 0)] {
        let mut machines = running(2);
        machines[0] =
            machine("failed", json!({ "status": { "currentStatus": { "phase": "Failed" } } }));
        let plan = decide(of_deployment(wanted), machines);
        assert_eq!((plan.delete.len(), plan.create), (goes, 0), "{wanted}");
        assert_eq!(plan.broken.len(), 1, "it is refused all the same");
    }
}

#[test]
fn a_selector_that_was_changed_under_machines_is_refused_and_orphans_none() {
    let changed = json!({
        "spec": {
            "selector": { "matchLabels": { "app": "b" } },
            "template": { "metadata": { "labels": { "app": "b" } } }
        },
        "status": { "selector": "app=a" }
    });
    let plan = decide(set(2, changed.clone()), running(2));
    assert!(plan.broken.join("").contains("was changed"), "{plan:?}");
    assert!(plan.release.is_empty());
    assert!(decide(set(2, changed), Vec::new()).broken.is_empty(), "without machines it may");
}

#[test]
fn a_deployment_that_takes_over_a_set_adds_its_hash_to_the_selector() {
    let labels = json!({ "app": "a", "machine-template-hash": "1" });
    let relabelled = set(
        1,
        json!({
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels } }
            },
            "status": { "selector": "app=a" }
        }),
    );
    let own = machine("m", json!({ "metadata": { "labels": labels } }));
    assert!(decide(relabelled, vec![own]).is_idle());
}

#[test]
fn an_invalid_set_can_be_deleted() {
    let gone = set(
        1,
        json!({
            "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" },
            "spec": { "selector": null }
        }),
    );
    assert_eq!(plan(&snapshot(gone, running(2))).delete.len(), 2);
}
