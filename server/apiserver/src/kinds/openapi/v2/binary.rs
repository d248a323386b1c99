//! The binary form of the document: that of gnostic, in which a map is a list of names and values, and what is of no
//! fixed type is YAML.

use std::sync::LazyLock;

use bytes::Bytes;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, prost::Message as _,
};
use serde_json::{Map, Value, json};

static DOCUMENT: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi_v2.bin"));
    DescriptorPool::decode(bytes).ok()?.get_message_by_name("openapi.v2.Document")
});

/// The document; empty if its description cannot be read: a defect of the build.
pub(super) fn encode(document: &Value) -> Bytes {
    let message = json!({
        "swagger": document["swagger"],
        "info": document["info"],
        "paths": { "path": named(&document["paths"], path_item) },
        "definitions": { "additionalProperties": named(&document["definitions"], schema) },
    });
    let known = DeserializeOptions::new().deny_unknown_fields(false);
    let made = DOCUMENT
        .clone()
        .map(|document| DynamicMessage::deserialize_with_options(document, message, &known));
    match made {
        Some(Ok(message)) => message.encode_to_vec().into(),
        Some(Err(error)) => {
            tracing::warn!(%error, "the document of OpenAPI v2 has no binary form");
            Bytes::new()
        }
        None => Bytes::new(),
    }
}

fn named(map: &Value, value: impl Fn(&Value) -> Value) -> Value {
    let fields = map.as_object().into_iter().flatten();
    fields.map(|(name, one)| json!({ "name": name, "value": value(one) })).collect()
}

fn list(all: &Value, one: impl Fn(&Value) -> Value) -> Value {
    all.as_array().into_iter().flatten().map(one).collect()
}

fn yaml(value: &Value) -> Value {
    json!({ "yaml": value.to_string() })
}

/// The fields, each as `change` has it, and the extensions beside them.
fn fields(object: &Value, change: impl Fn(&str, &Value) -> Value) -> Value {
    let (mut message, mut extensions) = (Map::new(), Vec::new());
    for (name, value) in object.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            extensions.push(json!({ "name": name, "value": yaml(value) }));
        } else {
            message.insert(name.replace('$', "_"), change(name, value));
        }
    }
    message.insert("vendorExtension".to_owned(), extensions.into());
    message.into()
}

fn schema(object: &Value) -> Value {
    fields(object, |name, value| match name {
        "type" => json!({ "value": [value] }),
        "items" => json!({ "schema": [schema(value)] }),
        "properties" => json!({ "additionalProperties": named(value, schema) }),
        "additionalProperties" if value.is_boolean() => json!({ "boolean": value }),
        "additionalProperties" => json!({ "schema": schema(value) }),
        "default" | "example" => yaml(value),
        "enum" => list(value, yaml),
        _ => value.clone(),
    })
}

fn path_item(object: &Value) -> Value {
    fields(object, |name, value| match name {
        "parameters" => list(value, parameter),
        _ => operation(value),
    })
}

fn operation(object: &Value) -> Value {
    let answer = |one: &Value| {
        json!({ "response": {
            "description": one["description"],
            "schema": { "schema": schema(&one["schema"]) },
        } })
    };
    fields(object, |name, value| match name {
        "parameters" => list(value, parameter),
        "responses" => json!({ "responseCode": named(value, answer) }),
        _ => value.clone(),
    })
}

fn parameter(object: &Value) -> Value {
    let parameter = match object["in"].as_str() {
        Some("body") => {
            let body = fields(object, |name, value| match name {
                "schema" => schema(value),
                _ => value.clone(),
            });
            json!({ "bodyParameter": body })
        }
        Some("path") => json!({ "nonBodyParameter": { "pathParameterSubSchema": object } }),
        _ => json!({ "nonBodyParameter": { "queryParameterSubSchema": object } }),
    };
    json!({ "parameter": parameter })
}
