//! The schemas of a document: the kinds, and every schema below.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::kinds::{
    Resource, Strategy, Subresource,
    access::set,
    builtin_types::{OBJECT_META, definitions},
    patch::strategic,
    type_name,
};

pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The name of a resource's schema. Custom groups are turned around: `org.example.v1.Widget`.
pub(super) fn name_of(resource: &Resource) -> String {
    match &resource.strategy {
        Strategy::BuiltIn(kind) => kind.type_name(),
        Strategy::Custom(_) => {
            let mut labels: Vec<&str> = resource.group.split('.').collect();
            labels.reverse();
            format!("{}.{}.{}", labels.join("."), resource.version, resource.kind)
        }
    }
}

/// The name of the schema of a resource's lists.
pub(super) fn list_name_of(resource: &Resource) -> String {
    format!("{}List", name_of(resource))
}

/// All schemas of a document.
pub(super) fn components(resources: &[&Resource]) -> Map<String, Value> {
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    for resource in resources {
        let kind = gvk(&resource.group, &resource.version, &resource.kind);
        let list = gvk(&resource.group, &resource.version, &resource.list_kind);
        schemas.insert(name_of(resource), with_kind(schema_of(resource), kind));
        schemas.insert(list_name_of(resource), with_kind(list_of(resource), list));
    }
    let patch =
        "Patch is provided to give a concrete name and type to the request body of a patch.";
    schemas.insert(PATCH.to_owned(), json!({ "description": patch, "type": "object" }));
    let mut missing: Vec<String> = schemas.values().flat_map(references).collect();
    missing.extend([STATUS, DELETE_OPTIONS, OBJECT_META].map(str::to_owned));
    let extra: BTreeMap<String, (&str, &str, Subresource)> = Subresource::ALL
        .into_iter()
        .filter_map(|part| part.foreign_kind().map(|kind| (part, kind)))
        .map(|(part, (group, kind))| (type_name(group, "v1", kind), (group, kind, part)))
        .collect();
    let used = |part| resources.iter().any(|resource| resource.subresources.has(part));
    missing.extend(extra.iter().filter(|(_, extra)| used(extra.2)).map(|(name, _)| name.clone()));
    while let Some(name) = missing.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(definition) = definitions().get(&name) else { continue };
        let mut schema = decorated(&name, definition);
        if let Some((group, kind, _)) = extra.get(&name) {
            schema = with_kind(schema, gvk(group, "v1", kind));
        }
        missing.extend(references(&schema));
        schemas.insert(name, schema);
    }
    schemas.into_iter().collect()
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!([{ "group": group, "kind": kind, "version": version }])
}

fn with_kind(mut schema: Value, kind: Value) -> Value {
    set(&mut schema, "x-kubernetes-group-version-kind", kind);
    schema
}

fn schema_of(resource: &Resource) -> Value {
    match &resource.strategy {
        Strategy::BuiltIn(kind) => {
            let name = kind.type_name();
            definitions().get(&name).map(|one| decorated(&name, one)).unwrap_or_default()
        }
        Strategy::Custom(version) => custom(&version.document),
    }
}

/// The description of a field of every object, from a built-in kind.
fn envelope(field: &str) -> Value {
    let pod = "io.k8s.api.core.v1.Pod";
    let pointer = format!("/properties/{field}");
    definitions().get(pod).and_then(|pod| pod.pointer(&pointer)).cloned().unwrap_or_default()
}

/// A custom schema with the fields that every object has.
fn custom(document: &Value) -> Value {
    let mut schema = document.clone();
    let Some(fields) = schema.as_object_mut() else { return json!({ "type": "object" }) };
    let open = fields.get("x-kubernetes-preserve-unknown-fields").is_some();
    if open && fields.get("properties").is_none() {
        return schema;
    }
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for name in ["apiVersion", "kind"] {
            properties.insert(name.to_owned(), envelope(name));
        }
        let description = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
        let reference = json!([{ "$ref": format!("#/components/schemas/{OBJECT_META}") }]);
        let metadata = json!({ "description": description, "allOf": reference });
        properties.insert("metadata".to_owned(), metadata);
    }
    schema
}

fn list_of(resource: &Resource) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": envelope("apiVersion"),
            "kind": envelope("kind"),
            "items": { "description": format!("List of {}.", resource.plural), "type": "array",
                       "items": reference(&name_of(resource)) },
            "metadata": { "description": "Standard list metadata.",
                          "allOf": [reference(LIST_META)] },
        },
    })
}

/// A built-in schema with the merge keys of its lists.
fn decorated(name: &str, definition: &Value) -> Value {
    let mut schema = definition.clone();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in properties.into_iter().flatten() {
        let rule = strategic::rule(name, field);
        let (Some(strategy), Some(property)) = (rule.strategy(), property.as_object_mut()) else {
            continue;
        };
        property.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy));
        if !rule.key.is_empty() {
            property.insert("x-kubernetes-patch-merge-key".to_owned(), json!(rule.key));
        }
    }
    schema
}

/// The schemas that a schema refers to.
fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            let own = own.and_then(|target| target.rsplit('/').next()).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[cfg(test)]
pub(super) fn references_in(document: &Value) -> Vec<String> {
    references(document)
}
