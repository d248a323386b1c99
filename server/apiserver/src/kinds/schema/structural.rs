//! Refuses schemas of definitions that are not structural.
//!
//! A structural schema says of every value what type it has and which properties, outside of
//! `allOf`, `anyOf`, `oneOf` and `not`: those may only restrict values that are described already.

mod nested;

use serde_json::Value;

use super::{JsonType, Schema, pattern::Pattern, rules};
use crate::kinds::field::{FieldError, child, index, key};

/// Where in a schema a schema stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

impl Level {
    const fn missing_type(self) -> &'static str {
        match self {
            Self::Root => "must not be empty at the root",
            Self::Item => "must not be empty for specified array items",
            Self::Field => "must not be empty for specified object fields",
        }
    }
}

/// The errors of a definition's schema.
pub(crate) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if flag(schema, "nullable") {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(child(path, "nullable"), detail));
    }
    walk(schema, path, Level::Root, true, &mut errors);
    errors
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Calls itself once for each level of the definition, which are bounded where it was read or patched. Items are
/// `keyed` if they are found again in an old object.
fn walk(schema: &Value, path: &str, level: Level, keyed: bool, errors: &mut Vec<FieldError>) {
    check_type(schema, path, level, errors);
    check_values(schema, path, errors);
    check_extensions(schema, path, errors);
    check_metadata(schema, path, level, errors);
    nested::check(schema, path, errors);
    errors.extend(rules::check(schema, path, keyed));
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in properties.into_iter().flatten() {
        walk(inner, &key(&child(path, "properties"), name), Level::Field, keyed, errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        let path = child(path, "additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&path, "must not be used at the root"));
        }
        if additional.is_object() {
            walk(additional, &path, Level::Field, keyed, errors);
        }
    }
    if let Some(inner) = schema.get("items") {
        let keyed = keyed && text(schema, "x-kubernetes-list-type") == "map";
        walk(inner, &child(path, "items"), Level::Item, keyed, errors);
    }
}

fn check_type(schema: &Value, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let open = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    let at = child(path, "type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(at.as_str(), detail)
        } else {
            FieldError::invalid_text(at.as_str(), kind, detail)
        });
    } else if kind.is_empty() && !open {
        errors.push(FieldError::required(at.as_str(), level.missing_type()));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid_text(at.as_str(), kind, "must be object at the root"));
    }
    if !kind.is_empty() && JsonType::parse(kind).is_none() {
        let value = Value::from(kind);
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(at.as_str(), &value, &known));
    }
    if kind == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(child(path, "items"), "must be specified"));
    }
    let closed = |value: &Value| value.is_object() || value == &Value::Bool(false);
    let named =
        schema.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    if named && schema.get("additionalProperties").is_some_and(closed) {
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

/// Checks that apply to every schema, nested schemas included.
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
        && let Err(error) = Pattern::new(pattern)
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

fn check_extensions(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let preserves = "x-kubernetes-preserve-unknown-fields";
    let open = flag(schema, preserves);
    if schema.get(preserves) == Some(&Value::Bool(false)) {
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(child(path, preserves), &Value::Bool(false), detail));
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && schema.get("additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(child(path, "additionalProperties"), detail));
    }
    if embedded && schema.get("properties").is_none() && !open {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(child(path, "properties"), detail));
    }
    if flag(schema, "x-kubernetes-int-or-string") {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        let others = ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"];
        for name in others.into_iter().filter(|name| flag(schema, name)) {
            errors.push(FieldError::invalid(child(path, name), &Value::Bool(true), detail));
        }
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
    let required = schema.pointer("/items/required").and_then(Value::as_array);
    for (position, name) in keys.iter().enumerate() {
        let Some(property) = properties.and_then(|all| all.get(name)) else {
            let detail = "entries must all be names of item properties";
            errors.push(FieldError::invalid_text(index(&keys_at, position), name, detail));
            continue;
        };
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        if !is_required && property.get("default").is_none() {
            let path = key(&child(&child(path, "items"), "properties"), name);
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(child(&path, "default"), detail));
        }
    }
}

/// The envelope of an object is known; a schema may only restrict its name.
fn check_metadata(schema: &Value, path: &str, level: Level, errors: &mut Vec<FieldError>) {
    let whole = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let property = |name: &str| schema.get("properties").and_then(|all| all.get(name));
    let at = |name: &str| key(&child(path, "properties"), name);
    if !whole {
        return;
    }
    for name in ["kind", "apiVersion"] {
        if let Some(kind) =
            property(name).map(|one| text(one, "type")).filter(|one| *one != "string")
        {
            errors.push(FieldError::invalid_text(child(&at(name), "type"), kind, "must be string"));
        }
    }
    let Some(metadata) = property("metadata") else { return };
    let kind = text(metadata, "type");
    if kind != "object" {
        let path = child(&at("metadata"), "type");
        errors.push(FieldError::invalid_text(path, kind, "must be object"));
    }
    let plain =
        metadata.as_object().into_iter().flatten().all(|(name, value)| match name.as_str() {
            "type" | "description" => true,
            "properties" => value.as_object().is_some_and(|all| {
                all.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))
            }),
            _ => false,
        });
    if level == Level::Root && !plain {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(at("metadata"), detail));
    }
}
