//! OpenAPI v2: all documents of v3 as one, in the older words. Helm, Terraform and older kubectl read it.

mod binary;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kinds::{
    Registry,
    access::set,
    document::{Document, tagged, tagged_bytes},
};

/// The type of the binary form: clients ask for it with `@` in the place of the last dot before `v1.0`, too.
const BINARY: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const BINARY_BEFORE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The document in the first form of `accept` that there is.
pub(crate) fn answer<'a>(registry: &'a Registry, accept: Option<&str>) -> Option<&'a Document> {
    let accept = accept.filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
    let mut wanted = accept.split(',').map(|it| it.split(';').next().unwrap_or_default().trim());
    let binary = wanted.find_map(|it| match it {
        BINARY | BINARY_BEFORE => Some(true),
        "application/json" | "application/*" | "*/*" => Some(false),
        _ => None,
    })?;
    let forms = registry.whole_document().get_or_init(|| forms(registry));
    let [json, protobuf] = forms;
    Some(if binary { protobuf } else { json })
}

fn forms(registry: &Registry) -> [Arc<Document>; 2] {
    let whole = whole(registry);
    let bytes = binary::encode(&whole);
    [tagged("application/json", &whole), tagged_bytes(BINARY, bytes)].map(Arc::new)
}

fn whole(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in super::documents_in(registry).values() {
        let mut document: Value = serde_json::from_slice(&document.bytes).unwrap_or_default();
        let mut take = |pointer: &str| match document.pointer_mut(pointer).map(Value::take) {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        paths.extend(take("/paths").into_iter().map(|(path, item)| (path, path_item(item))));
        for (name, found) in take("/components/schemas") {
            let text = name.ends_with(".Quantity") || name.ends_with(".IntOrString");
            let mut found = schema(found);
            if text {
                set(&mut found, "type", "string");
            }
            definitions.insert(name, found);
        }
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": super::VERSION },
        "paths": paths,
        "definitions": definitions,
    })
}

/// Keywords without an equivalent in v2. Kubernetes omits the same keywords.
const UNKNOWN: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "nullable"];

/// A schema in terms of v2. What may be null, or have fields that nobody named, says nothing of its own:
/// clients of this version would refuse the rest.
fn schema(found: Value) -> Value {
    let Value::Object(mut fields) = found else { return found };
    let is = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let (null, open) = (is("nullable"), is("x-kubernetes-preserve-unknown-fields"));
    let either = is("x-kubernetes-int-or-string");
    let wrapped = fields.get("allOf").and_then(|all| all.get(0)?.get("$ref")).cloned();
    if let Some(target) = wrapped.or_else(|| fields.get("$ref").cloned())
        && let Some(target) = target.as_str()
    {
        let target = target.replace("#/components/schemas/", "#/definitions/");
        fields.insert("$ref".to_owned(), target.into());
    }
    fields.retain(|name, _| match name.as_str() {
        "type" => !null && !either,
        "properties" | "items" => !null && !open,
        name => !UNKNOWN.contains(&name),
    });
    for (name, value) in &mut fields {
        match (name.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(|one| *one = schema(one.take()));
            }
            ("items" | "additionalProperties", value) => *value = schema(value.take()),
            _ => {}
        }
    }
    Value::Object(fields)
}

fn path_item(item: Value) -> Value {
    let Value::Object(mut fields) = item else { return item };
    for (name, value) in &mut fields {
        *value =
            if name == "parameters" { parameters(Some(value)) } else { operation(value.take()) };
    }
    Value::Object(fields)
}

fn parameters(all: Option<&Value>) -> Value {
    let flat = |one: &Value| {
        let mut one = one.clone();
        if let Some(Value::Object(schema)) = one.as_object_mut().and_then(|it| it.remove("schema"))
            && let Some(fields) = one.as_object_mut()
        {
            fields.extend(schema);
        }
        one
    };
    all.and_then(Value::as_array).into_iter().flatten().map(flat).collect()
}

/// The types of a body and its schema.
fn content(holder: &Value) -> Option<(Vec<String>, Value)> {
    let types = holder.get("content")?.as_object()?;
    let body = types.values().next()?.get("schema")?.clone();
    Some((types.keys().cloned().collect(), schema(body)))
}

fn operation(mut found: Value) -> Value {
    let mut all = parameters(found.get("parameters"));
    let body = found.as_object_mut().and_then(|fields| fields.remove("requestBody"));
    let body = body.as_ref().and_then(|body| Some((content(body)?, body.get("required")?)));
    if let (Some(((types, schema), required)), Some(all)) = (body, all.as_array_mut()) {
        set(&mut found, "consumes", types);
        all.push(json!({ "name": "body", "in": "body", "required": required, "schema": schema }));
    }
    let answer = found.pointer("/responses/200").and_then(content);
    if let Some((types, schema)) = answer {
        set(&mut found, "produces", types);
        set(&mut found, "responses", json!({ "200": { "description": "OK", "schema": schema } }));
    }
    set(&mut found, "parameters", all);
    found
}

#[cfg(test)]
mod tests;
