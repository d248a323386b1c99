use serde_json::{Value, json};

use super::{StrategicError, apply};
use crate::kinds::BuiltIn;

fn merged(kind: BuiltIn, mut object: Value, patch: &Value) -> Value {
    apply(kind, &mut object, patch).unwrap();
    object
}

#[test]
fn conditions_merge_by_type_and_new_ones_come_first() {
    let node =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "A"}]}});
    let node = merged(
        BuiltIn::Node,
        node,
        &json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}),
    );
    assert_eq!(node["status"]["conditions"][0]["type"], "DiskPressure");
    let node = merged(
        BuiltIn::Node,
        node,
        &json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    assert_eq!(
        node["status"]["conditions"],
        json!([{"type": "DiskPressure", "status": "False"},
               {"type": "Ready", "status": "False", "reason": "A"}])
    );
    let node = merged(
        BuiltIn::Node,
        node,
        &json!({"status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DiskPressure"}],
            "conditions": [{"type": "DiskPressure", "status": "True"}]}}),
    );
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(node["status"]["conditions"][1]["status"], "True");
}

#[test]
fn directives_do_what_they_say() {
    let cases = [
        (
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "z": "9"}}}),
            json!({"metadata": {"labels": {"z": "9"}}}),
        ),
        (
            json!({"metadata": {"finalizers": ["x/a"]}}),
            json!({"metadata": {"finalizers": ["x/b"]}}),
            json!({"metadata": {"finalizers": ["x/b", "x/a"]}}),
        ),
        (
            json!({"metadata": {"finalizers": ["x/b", "x/a"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}}),
            json!({"metadata": {"finalizers": ["x/b"]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [
                {"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]}}),
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        ),
        (
            json!({"spec": {"tolerations": [{"key": "a"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
        ),
    ];
    for (object, patch, result) in cases {
        assert_eq!(merged(BuiltIn::Pod, object, &patch), result, "{patch}");
    }
}

#[test]
fn an_item_without_its_key_is_refused() {
    let mut pod = json!({"spec": {"containers": [{"name": "a"}]}});
    let error = apply(BuiltIn::Pod, &mut pod, &json!({"spec": {"containers": [{"image": "x"}]}}));
    assert!(matches!(error, Err(StrategicError::NoMergeKey { key, .. }) if key == "name"));
}

#[test]
fn an_order_that_misses_an_item_is_refused() {
    let mut pod = json!({"spec": {"containers": [{"name": "a"}]}});
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}});
    assert_eq!(apply(BuiltIn::Pod, &mut pod, &patch), Err(StrategicError::ElementOrder));
}

#[test]
fn more_items_than_are_compared_are_refused() {
    let finalizers: Vec<String> = (0..200_000).map(|at| format!("a/{at}")).collect();
    let mut node = json!({"metadata": {"name": "n", "finalizers": ["x/y"]}});
    for patch in [
        json!({"metadata": {"finalizers": finalizers}}),
        json!({"metadata": {"$setElementOrder/finalizers": finalizers}}),
    ] {
        let error = apply(BuiltIn::Node, &mut node, &patch).unwrap_err();
        assert_eq!(error, StrategicError::TooManyItems { items: 200_001 });
    }
}

#[test]
fn directives_of_many_values_are_looked_up_and_not_searched() {
    let names: Vec<String> = (0..100_000).map(|at| format!("f{at}")).collect();
    let fields: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!(1))).collect();
    let mut patch = fields.clone();
    patch.insert("$retainKeys".to_owned(), json!(names));
    let node = merged(BuiltIn::Node, json!({"zz": 1}), &Value::Object(patch));
    assert_eq!(node, Value::Object(fields));
    let images = json!({"status": {"images": names}});
    let patch = json!({"status": {"$deleteFromPrimitiveList/images": names}});
    assert_eq!(merged(BuiltIn::Node, images, &patch), json!({"status": {"images": []}}));
}
