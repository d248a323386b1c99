//! From a definition's JSON to a [`Schema`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Additional, Bound, JsonType, Limits, ListType, Schema, pattern::Pattern, rules::Rule};

impl Schema {
    /// Parses an `openAPIV3Schema`. Calls itself once for each level of the document, which are bounded where
    /// it was stored. What is malformed is left out: the definition was validated
    /// when it was stored, and an object must never be refused for a schema that its writer cannot
    /// fix.
    pub(crate) fn parse(document: &Value) -> Self {
        let flag = |name: &str| document.get(name).and_then(Value::as_bool).unwrap_or(false);
        let one = |name: &str| document.get(name).map(|inner| Box::new(Self::parse(inner)));
        let properties: BTreeMap<String, Self> = document
            .get("properties")
            .and_then(Value::as_object)
            .map(|all| all.iter().map(|(name, inner)| (name.clone(), Self::parse(inner))).collect())
            .unwrap_or_default();
        let additional = match document.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(inner @ Value::Object(_)) => Additional::Matching(Box::new(Self::parse(inner))),
            _ => Additional::None,
        };
        let items = one("items");
        let rules = Rule::all(document);
        let ruled = !rules.is_empty()
            || properties.values().any(|inner| inner.ruled)
            || items.as_ref().is_some_and(|inner| inner.ruled)
            || matches!(&additional, Additional::Matching(inner) if inner.ruled);
        Self {
            kind: text(document, "type").and_then(JsonType::parse),
            nullable: flag("nullable"),
            properties,
            additional,
            items,
            default: document.get("default").filter(|value| !value.is_null()).cloned(),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list_type: list_type(document),
            limits: limits(document),
            rules,
            ruled,
        }
    }
}

fn text<'a>(document: &'a Value, name: &str) -> Option<&'a str> {
    document.get(name).and_then(Value::as_str)
}

fn texts(document: &Value, name: &str) -> Vec<String> {
    let list = document.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn list_type(document: &Value) -> ListType {
    match text(document, "x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(document, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn limits(document: &Value) -> Limits {
    let size = |name: &str| {
        let number = document.get(name).and_then(Value::as_u64);
        number.and_then(|number| usize::try_from(number).ok())
    };
    let bound = |name: &str, exclusive: &str| {
        let value = document.get(name).and_then(Value::as_f64)?;
        let exclusive = document.get(exclusive).and_then(Value::as_bool).unwrap_or(false);
        Some(Bound { value, exclusive })
    };
    let many = |name: &str| -> Vec<Schema> {
        let list = document.get(name).and_then(Value::as_array);
        list.into_iter().flatten().map(Schema::parse).collect()
    };
    Limits {
        enumeration: document.get("enum").and_then(Value::as_array).cloned(),
        format: text(document, "format").map(str::to_owned),
        pattern: text(document, "pattern").and_then(|pattern| Pattern::new(pattern).ok()),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: document.get("multipleOf").and_then(Value::as_f64),
        min_length: size("minLength"),
        max_length: size("maxLength"),
        min_items: size("minItems"),
        max_items: size("maxItems"),
        unique_items: document.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false),
        min_properties: size("minProperties"),
        max_properties: size("maxProperties"),
        required: texts(document, "required"),
        all_of: many("allOf"),
        any_of: many("anyOf"),
        one_of: many("oneOf"),
        not: document.get("not").map(|inner| Box::new(Schema::parse(inner))),
    }
}
