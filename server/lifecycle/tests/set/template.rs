use ostler_lifecycle::set::{machine, machine_name};
use serde_json::json;

use crate::set::objects::set;

#[test]
fn a_machine_has_what_the_template_says_and_one_owner() {
    let key = "node.machine.sapcloud.io/effective-creation-timeout";
    let set = set(
        1,
        json!({
            "metadata": { "annotations": { key: "7m", "else": "x" } },
            "spec": { "template": {
                "metadata": {
                    "namespace": "elsewhere", "name": "ignored", "finalizers": ["f/f"],
                    "annotations": { "a": "1" }
                },
                "spec": { "version": "v1", "creationTimeout": "1m" }
            } }
        }),
    );
    let made = serde_json::to_value(machine(&set, "s-abcde")).unwrap();
    let expected = json!({
        "name": "s-abcde", "namespace": "default", "labels": { "app": "a" },
        "annotations": { "a": "1", key: "7m" }, "finalizers": ["f/f"],
        "ownerReferences": [{
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
            "uid": "set-uid", "controller": true, "blockOwnerDeletion": true
        }]
    });
    assert_eq!(made["metadata"], expected);
    assert_eq!(made["spec"]["version"], "v1");
    assert_eq!(made["spec"]["creationTimeout"], "7m", "the annotation wins");
}

#[test]
fn a_new_machine_takes_nothing_over_from_its_template() {
    let set = set(1, json!({ "spec": { "template": { "spec": { "drainTimeout": "1m" } } } }));
    let made = machine(&set, "s-1");
    assert_eq!(ostler_lifecycle::set::pushed(&made.spec, &set), made.spec);
}

#[test]
fn a_name_fits_a_label() {
    assert_eq!(machine_name("s", "abcde"), "s-abcde");
    let long = machine_name(&"x".repeat(80), "abcde");
    assert_eq!((long.len(), long.ends_with("x-abcde")), (63, true));
    let dotted = machine_name(&format!("{}.{}", "x".repeat(56), "y".repeat(20)), "abcde");
    assert_eq!(dotted, format!("{}-abcde", "x".repeat(56)), "no label has a dot before a dash");
}
