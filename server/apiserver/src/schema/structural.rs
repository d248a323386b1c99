//! Which schemas of definitions are refused: those that are not structural.

use regex::Regex;
use serde_json::Value;

use super::{JsonType, Schema};
use crate::field::{FieldError, child, index, key};

/// What is wrong with a definition's schema.
pub fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(schema, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(child(path, "type"), "must not be empty at the root"));
    } else if kind != "object" {
        let detail = r#"must be "object" at the root"#;
        errors.push(FieldError::invalid_text(child(path, "type"), kind, detail));
    }
    if flag(schema, "nullable") {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(child(path, "nullable"), detail));
    }
    walk(schema, path, true, &mut errors);
    errors
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn walk(schema: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    check_type(schema, path, root, errors);
    check_values(schema, path, errors);
    check_extensions(schema, path, root, errors);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in properties.into_iter().flatten() {
        walk(inner, &key(&child(path, "properties"), name), false, errors);
    }
    if let Some(inner @ Value::Object(_)) = schema.get("additionalProperties") {
        walk(inner, &child(path, "additionalProperties"), false, errors);
    }
    if let Some(inner) = schema.get("items") {
        walk(inner, &child(path, "items"), false, errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(name).and_then(Value::as_array);
        for (position, inner) in list.into_iter().flatten().enumerate() {
            check_values(inner, &index(&child(path, name), position), errors);
        }
    }
}

fn check_type(schema: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let open = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if kind.is_empty() && !open && !root {
        let detail = "must not be empty for specified object fields";
        let detail = if path.rsplit('.').next() == Some("items") {
            "must not be empty for specified array items"
        } else {
            detail
        };
        errors.push(FieldError::required(child(path, "type"), detail));
    }
    if !kind.is_empty() && JsonType::parse(kind).is_none() {
        let value = Value::from(kind);
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(child(path, "type"), &value, &known));
    }
    if kind == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(child(path, "items"), "must be specified"));
    }
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(child(path, "additionalProperties"), detail));
    }
}

const FORBIDDEN: [(&str, &str); 6] = [
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("id", "id is not supported"),
    ("$ref", "$ref is not supported"),
];

fn check_values(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, detail) in FORBIDDEN {
        if schema.get(name).is_some() {
            errors.push(FieldError::forbidden(child(path, name), detail));
        }
    }
    if flag(schema, "uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(child(path, "uniqueItems"), detail));
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid_text(child(path, "pattern"), pattern, &detail));
    }
    if let Some(default) = schema.get("default").filter(|value| !value.is_null()) {
        let path = child(path, "default");
        for error in Schema::parse(schema).validate(default) {
            let inner =
                if error.path.is_empty() { path.clone() } else { child(&path, &error.path) };
            errors.push(FieldError { path: inner, ..error });
        }
    }
}

fn check_extensions(schema: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if flag(schema, "x-kubernetes-embedded-resource") {
        if kind != "object" && !root {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            errors.push(FieldError::invalid_text(child(path, "type"), kind, detail));
        }
        let open = flag(schema, "x-kubernetes-preserve-unknown-fields");
        if schema.get("properties").is_none() && !open {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            errors.push(FieldError::required(child(path, "properties"), detail));
        }
    }
    if flag(schema, "x-kubernetes-int-or-string") && !kind.is_empty() {
        let detail = "must be empty if x-kubernetes-int-or-string is true";
        errors.push(FieldError::forbidden(child(path, "type"), detail));
    }
    check_list_type(schema, path, errors);
}

fn check_list_type(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let at = child(path, "x-kubernetes-list-type");
    let known = ["atomic", "map", "set"];
    if !list_type.is_empty() && !known.contains(&list_type) {
        errors.push(FieldError::not_supported(at, &Value::from(list_type), &known));
        return;
    }
    if !list_type.is_empty() && text(schema, "type") != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        errors.push(FieldError::invalid_text(child(path, "type"), text(schema, "type"), detail));
    }
    let keys_at = child(path, "x-kubernetes-list-map-keys");
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
    if list_type != "map" {
        if !keys.is_empty() {
            let detail = "must not be specified unless x-kubernetes-list-type is map";
            errors.push(FieldError::forbidden(keys_at, detail));
        }
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_at.as_str(), detail));
    }
    let properties = schema.pointer("/items/properties");
    for (position, name) in keys.iter().enumerate() {
        if properties.and_then(|all| all.get(name)).is_none() {
            let detail = "entries must all be names of item properties";
            errors.push(FieldError::invalid_text(index(&keys_at, position), name, detail));
        }
    }
}
