//! What the definitions accept, the types read: an object that is stored and cannot be read holds up its namespace.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use ostler_api::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet,
};
use serde_json::{Map, Value, json};

/// Fields that an object without a complete schema may have with any type.
const OPEN: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The least that a schema accepts, and beside it, one at a time, whatever else: the extremes of every field.
fn samples(schema: &Value) -> Vec<Value> {
    let mut all = match schema["type"].as_str() {
        _ if schema["enum"].is_array() => schema["enum"].as_array().unwrap().clone(),
        _ if schema["x-kubernetes-int-or-string"] == true => {
            [numbers(schema), vec![text(schema)]].concat()
        }
        Some("string") => vec![text(schema)],
        Some("integer") => numbers(schema),
        Some("boolean") => vec![true.into()],
        Some("array") => {
            let items = samples(&schema["items"]).into_iter();
            [json!([])].into_iter().chain(items.map(|one| json!([one]))).collect()
        }
        Some("object") => objects(schema),
        other => panic!("no samples of {other:?}: {schema}"),
    };
    if schema["nullable"] == true {
        all.push(Value::Null);
    }
    all
}

fn numbers(schema: &Value) -> Vec<Value> {
    let (least, most) = match schema["format"].as_str() {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers")]
    let limit = |name: &str| schema[name].as_f64().map(|limit| limit as i64);
    vec![limit("minimum").unwrap_or(least).into(), limit("maximum").unwrap_or(most).into()]
}

fn text(schema: &Value) -> Value {
    match (schema["format"].as_str(), schema["pattern"].as_str()) {
        (Some("date-time"), _) => "2026-01-02T03:04:05Z".into(),
        (None, None) => "x".into(),
        (_, Some(pattern)) => {
            let known = ["5%", "[1-5]", "5m"];
            let pattern = regex::Regex::new(pattern).unwrap();
            (*known.iter().find(|text| pattern.is_match(text)).unwrap()).into()
        }
        other => panic!("{other:?}"),
    }
}

fn objects(schema: &Value) -> Vec<Value> {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required = schema["required"].as_array().into_iter().flatten();
    let required = required.map(|name| name.as_str().unwrap());
    let least: Map<String, Value> =
        required.map(|name| (name.to_owned(), samples(&properties[name]).remove(0))).collect();
    let with = |name: &str, value: Value| {
        let mut object = least.clone();
        object.insert(name.to_owned(), value);
        Value::Object(object)
    };
    let mut all = vec![Value::Object(least.clone())];
    for (name, schema) in properties {
        all.extend(samples(schema).into_iter().map(|value| with(name, value)));
    }
    if schema["additionalProperties"].is_object() {
        let values = samples(&schema["additionalProperties"]).into_iter();
        all.extend(values.map(|value| with("x", value)));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        let open = OPEN.iter().filter(|name| !properties.contains_key(**name));
        all.extend(
            open.flat_map(|name| [json!(5), json!("x"), json!({})].map(|it| with(name, it))),
        );
    }
    all
}

#[test]
fn whatever_a_definition_accepts_can_be_read() {
    let mut unread = Vec::new();
    for crd in ostler_api::crds() {
        let version = &serde_json::to_value(&crd).unwrap()["spec"]["versions"][0];
        let all = samples(&version["schema"]["openAPIV3Schema"]);
        assert!(all.len() > 30, "{} samples of {}", all.len(), crd.spec.names.kind);
        for mut object in all {
            for (field, value) in [
                ("apiVersion", json!(format!("{}/v1alpha1", crd.spec.group))),
                ("kind", json!(crd.spec.names.kind)),
                ("metadata", json!({ "name": "x" })),
            ] {
                object[field] = value;
            }
            let text = object.to_string();
            let read = match crd.spec.names.kind.as_str() {
                "Machine" => serde_json::from_value::<Machine>(object).err(),
                "MachineClass" => serde_json::from_value::<MachineClass>(object).err(),
                "MachineSet" => serde_json::from_value::<MachineSet>(object).err(),
                "MachineDeployment" => serde_json::from_value::<MachineDeployment>(object).err(),
                "MachinePool" => serde_json::from_value::<MachinePool>(object).err(),
                "MachineHealthCheck" => serde_json::from_value::<MachineHealthCheck>(object).err(),
                "MachineReserve" => serde_json::from_value::<MachineReserve>(object).err(),
                other => panic!("{other} is not read"),
            };
            unread.extend(read.map(|error| format!("{text}: {error}")));
        }
    }
    assert!(unread.is_empty(), "{} of them:\n{}", unread.len(), unread.join("\n"));
}
