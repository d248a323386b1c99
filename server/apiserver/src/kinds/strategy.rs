//! What differs by kind, dispatched to one file per kind.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{BuiltIn, CustomVersion, DecodeError, NameRule, Subresource, UnknownField};
use crate::field::FieldError;

/// The behaviour of a kind.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// Compiled in.
    BuiltIn(BuiltIn),
    /// From a definition's schema.
    Custom(Arc<CustomVersion>),
}

impl Strategy {
    pub(super) fn decode(
        &self,
        _kind: &str,
        _object: &mut Value,
    ) -> Result<Vec<UnknownField>, DecodeError> {
        Ok(Vec::new())
    }

    pub(super) fn default(&self, _object: &mut Value) {}

    pub(super) fn prepare_create(&self, _object: &mut Value) {}

    pub(super) fn prepare_update(&self, _new: &mut Value, _old: &Value, _part: Option<Subresource>) {
    }

    pub(super) fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    pub(super) fn validate_update(
        &self,
        _new: &Value,
        _old: &Value,
        _part: Option<Subresource>,
    ) -> Vec<FieldError> {
        Vec::new()
    }

    pub(super) fn has_generation(&self) -> bool {
        match self {
            Self::BuiltIn(kind) => kind.has_generation(),
            Self::Custom(_) => true,
        }
    }

    pub(super) fn spec_differs(&self, new: &Value, old: &Value, status_apart: bool) -> bool {
        let skip = |name: &str| {
            matches!(name, "metadata" | "apiVersion" | "kind") || (status_apart && name == "status")
        };
        let empty = Map::new();
        let new = new.as_object().unwrap_or(&empty);
        let old = old.as_object().unwrap_or(&empty);
        new.iter().any(|(name, value)| !skip(name) && old.get(name) != Some(value))
            || old.keys().any(|name| !skip(name) && !new.contains_key(name))
    }

    pub(super) fn field_labels(&self, _object: &Value, _labels: &mut Vec<(String, String)>) {}

    pub(super) fn name_rule(&self) -> NameRule {
        match self {
            Self::BuiltIn(kind) => kind.name_rule(),
            Self::Custom(_) => NameRule::Subdomain,
        }
    }
}

/// The text at a JSON pointer, or the empty text.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Drops a top-level field.
pub(super) fn remove(object: &mut Value, name: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(name);
    }
}

/// Gives `new` the top-level field of `old`, or none if `old` has none.
pub(super) fn keep(new: &mut Value, old: &Value, name: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(name) {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}

/// Gives `new` everything of `old` but the status; of its metadata only `managedFields` stays.
pub(super) fn keep_all_but_status(new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let managed = new.pointer("/metadata/managedFields").cloned();
    let identity = ["/metadata/resourceVersion", "/metadata/uid"]
        .map(|pointer| (pointer, new.pointer(pointer).cloned()));
    *new = old.clone();
    let Some(fields) = new.as_object_mut() else { return };
    match status {
        Some(status) => fields.insert("status".to_owned(), status),
        None => fields.remove("status"),
    };
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for (pointer, value) in identity {
        if let (Some(name), Some(value)) = (pointer.rsplit('/').next(), value) {
            metadata.insert(name.to_owned(), value);
        }
    }
    if let Some(managed) = managed {
        metadata.insert("managedFields".to_owned(), managed);
    }
}
