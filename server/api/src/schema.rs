//! Schemas shared by several kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// An object stored unchanged, unknown fields included.
pub(crate) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of such objects.
pub(crate) fn free_forms(of: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": free_form(of) })
}

/// The metadata in a template. Unknown fields are kept, and fields that are known have the types that they are read
/// with; Go writes `creationTimestamp: null`.
pub(crate) fn template_metadata(of: &mut SchemaGenerator) -> Schema {
    let mut schema = ObjectMeta::json_schema(of);
    schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(|all| all.values_mut()) {
        without_descriptions(field);
        if let Some(field) = field.as_object_mut() {
            field.insert("nullable".to_owned(), true.into());
        }
    }
    schema
}

/// Descriptions would be repeated for each template.
fn without_descriptions(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("description");
    fields.values_mut().for_each(without_descriptions);
}
