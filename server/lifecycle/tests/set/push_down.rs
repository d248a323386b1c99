use serde_json::{Value, json};

use crate::set::objects::{decide, deleting, machine, set};

fn patch(template: Value, own: Value) -> Option<Value> {
    let mut spec = template;
    spec["class"] = json!({ "kind": "MachineClass", "name": "other" });
    let set = set(1, json!({ "spec": { "template": { "spec": spec } } }));
    let one = machine("m", json!({ "spec": own, "metadata": { "resourceVersion": "7" } }));
    let plan = decide(set, vec![one]);
    plan.patches.first().map(|(_, patch)| patch.clone())
}

#[test]
fn one_patch_takes_all_of_it_down_and_leaves_the_name_of_the_class() {
    let template = json!({
        "nodeTemplate": { "metadata": { "labels": { "a": "1" } } },
        "drainTimeout": "1m", "healthTimeout": "2m", "creationTimeout": "3m",
        "inPlaceUpdateTimeout": "4m", "machinePreserveTimeout": "5m",
        "disableHealthTimeout": true, "maxEvictRetries": 3, "nodeConditions": "X"
    });
    let expected = json!({ "metadata": { "resourceVersion": "7" }, "spec": template });
    assert_eq!(patch(template, json!({})), Some(expected));
    assert_eq!(patch(json!({}), json!({})), None, "another class name needs another machine");
}

#[test]
fn what_the_template_dropped_goes_and_what_is_no_part_of_it_stays() {
    let own = json!({
        "drainTimeout": "1m", "providerID": "p", "version": "v1",
        "nodeTemplate": { "metadata": { "labels": { "a": "1", "b": "2" } } }
    });
    let template = json!({ "nodeTemplate": { "metadata": { "labels": { "b": "2" } } } });
    let spec = json!({ "drainTimeout": null, "nodeTemplate": { "metadata": { "labels": { "a": null } } } });
    assert_eq!(patch(template, own).unwrap()["spec"], spec);
}

#[test]
fn a_machine_that_is_being_deleted_takes_it_over_so_that_a_stuck_drain_can_be_shortened() {
    let set = set(0, json!({ "spec": { "template": { "spec": { "drainTimeout": "1m" } } } }));
    assert_eq!(decide(set, vec![deleting("m")]).patches.len(), 1);
}

#[test]
fn labels_and_annotations_of_the_template_are_not_taken_over() {
    let metadata = json!({ "labels": { "app": "a", "new": "1" }, "annotations": { "new": "1" } });
    let set = set(1, json!({ "spec": { "template": { "metadata": metadata } } }));
    assert!(decide(set, vec![machine("m", json!({}))]).is_idle());
}
