//! Schemas that more than one kind has.

use schemars::{Schema, SchemaGenerator, json_schema};

/// An object that is kept as it is, unknown fields included.
pub(crate) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of such objects.
pub(crate) fn free_forms(of: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": free_form(of) })
}
