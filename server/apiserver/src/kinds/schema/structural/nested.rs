//! Schemas inside `allOf`, `anyOf`, `oneOf` and `not`: they may restrict values, not describe them.

use serde_json::{Value, json};

use super::check_values;
use crate::kinds::field::{FieldError, child, index, key};

/// Checks all nested schemas of a schema.
pub(super) fn check(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (inner, inner_path) in nested(schema, path) {
        walk(inner, &inner_path, errors);
        complete(inner, &inner_path, Some(schema), path, errors);
    }
}

/// The schemas one level down. `anyOf` an integer or a string is the long form of
/// `x-kubernetes-int-or-string` and restricts nothing.
fn nested<'a>(schema: &'a Value, path: &str) -> Vec<(&'a Value, String)> {
    let mut found = Vec::new();
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(name).and_then(Value::as_array);
        let list = list.map(Vec::as_slice).unwrap_or_default();
        if name == "anyOf" && is_int_or_string(list) {
            continue;
        }
        let path = child(path, name);
        found.extend(list.iter().enumerate().map(|(at, one)| (one, index(&path, at))));
    }
    found.extend(schema.get("not").map(|one| (one, child(path, "not"))));
    found
}

fn is_int_or_string(list: &[Value]) -> bool {
    list == [json!({ "type": "integer" }), json!({ "type": "string" })]
}

/// What describes a value and is forbidden here, with the words for it.
const DESCRIBING: [(&str, &str); 13] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("externalDocs", "must be undefined to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

fn walk(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    check_values(schema, path, errors);
    let set = |name: &str| {
        schema.get(name).is_some_and(|value| *value != Value::Bool(false) && *value != json!(""))
    };
    for (name, detail) in DESCRIBING.iter().filter(|(name, _)| set(name)) {
        errors.push(FieldError::forbidden(child(path, name), detail));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in properties.into_iter().flatten() {
        let path = key(&child(path, "properties"), name);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(&path, detail));
        }
        walk(inner, &path, errors);
    }
    if let Some(inner) = schema.get("items") {
        walk(inner, &child(path, "items"), errors);
    }
    for (inner, path) in nested(schema, path) {
        walk(inner, &path, errors);
    }
}

/// Whatever a nested schema restricts must be described by the schema around it.
fn complete(
    nested_schema: &Value,
    nested_path: &str,
    described: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(described) = described else {
        let detail = format!("because it is defined in {nested_path}");
        errors.push(FieldError::required(path, &detail));
        return;
    };
    let properties = nested_schema.get("properties").and_then(Value::as_object);
    for (name, inner) in properties.into_iter().flatten() {
        let outer = described.get("properties").and_then(|all| all.get(name));
        let below = |path: &str| key(&child(path, "properties"), name);
        complete(inner, &below(nested_path), outer, &below(path), errors);
    }
    if let Some(inner) = nested_schema.get("items") {
        let outer = described.get("items");
        complete(inner, &child(nested_path, "items"), outer, &child(path, "items"), errors);
    }
    for (inner, inner_path) in nested(nested_schema, nested_path) {
        complete(inner, &inner_path, Some(described), path, errors);
    }
}
