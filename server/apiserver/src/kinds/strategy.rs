//! What differs between kinds: by their schema, or by what is written for them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    BuiltIn, CustomVersion, DecodeError, NameRule, Subresource, UnknownField,
    access::{keep, remove, set},
};
use crate::{field::FieldError, schema::catalogue};

/// The behaviour of a kind.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// Compiled in.
    BuiltIn(BuiltIn),
    /// From a definition's schema.
    Custom(Arc<CustomVersion>),
}

impl Strategy {
    pub(super) fn decode(&self, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
        match self {
            Self::BuiltIn(kind) => catalogue::decode(*kind, object),
            Self::Custom(version) => version.schema.prune(object),
        }
    }

    pub(super) fn default(&self, object: &mut Value) {
        match self {
            Self::BuiltIn(kind) => kind.default(object),
            Self::Custom(version) => version.schema.default(object),
        }
    }

    pub(super) fn prepare_create(&self, object: &mut Value, has_status: bool) {
        match self {
            Self::BuiltIn(kind) => kind.prepare_create(object),
            Self::Custom(_) if has_status => remove(object, "status"),
            Self::Custom(_) => {}
        }
    }

    /// On `/status` a custom object keeps all its metadata, a built-in one takes labels,
    /// annotations and the rest of the new metadata.
    pub(super) fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        has_status: bool,
    ) {
        match (self, part) {
            (_, None) if has_status => keep(new, old, "status"),
            (
                Self::Custom(_) | Self::BuiltIn(BuiltIn::CustomResourceDefinition),
                Some(Subresource::Status),
            ) => {
                keep_all_but_status(new, old);
            }
            (Self::BuiltIn(_), Some(Subresource::Status)) => keep_body_but_status(new, old),
            _ => {}
        }
        if let Self::BuiltIn(kind) = self {
            kind.prepare_update(new, old, part);
        }
    }

    pub(super) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::BuiltIn(kind) => kind.validate(object),
            Self::Custom(version) => version.schema.validate(object),
        }
    }

    pub(super) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
    ) -> Vec<FieldError> {
        match self {
            Self::BuiltIn(kind) => kind.validate_update(new, old, part),
            Self::Custom(version) if part == Some(Subresource::Status) => {
                version.schema.validate_status_change(new, old)
            }
            Self::Custom(version) => version.schema.validate_change(new, old),
        }
    }

    pub(super) fn has_generation(&self) -> bool {
        match self {
            Self::BuiltIn(kind) => kind.has_generation(),
            Self::Custom(_) => true,
        }
    }

    pub(super) fn field_labels(&self, object: &Value, labels: &mut Vec<(String, String)>) {
        match self {
            Self::BuiltIn(kind) => {
                let add = |name: &str, value: String| labels.push((name.to_owned(), value));
                kind.field_labels(object, add);
            }
            Self::Custom(version) => labels.extend(version.selectable_values(object)),
        }
    }

    pub(super) fn name_rule(&self) -> NameRule {
        match self {
            Self::BuiltIn(kind) => kind.name_rule(),
            Self::Custom(_) => NameRule::Subdomain,
        }
    }
}

/// Whether anything but the envelope (and, where it is apart, the status) differs.
pub(super) fn body_differs(new: &Value, old: &Value, status_apart: bool) -> bool {
    let skip = |name: &str| {
        matches!(name, "metadata" | "apiVersion" | "kind") || (status_apart && name == "status")
    };
    let empty = Map::new();
    let new = new.as_object().unwrap_or(&empty);
    let old = old.as_object().unwrap_or(&empty);
    new.iter().any(|(name, value)| !skip(name) && old.get(name) != Some(value))
        || old.keys().any(|name| !skip(name) && !new.contains_key(name))
}

/// Gives `new` everything of `old` but the status; of its metadata only what identifies the write
/// and `managedFields` stay.
fn keep_all_but_status(new: &mut Value, old: &Value) {
    let kept = ["resourceVersion", "uid", "managedFields"].map(|name| {
        let value = new.get("metadata").and_then(|metadata| metadata.get(name)).cloned();
        (name, value)
    });
    keep_body_but_status(new, old);
    keep(new, old, "metadata");
    let Some(metadata) = new.get_mut("metadata") else { return };
    for (name, value) in kept {
        match value {
            Some(value) => set(metadata, name, value),
            None if name == "managedFields" => remove(metadata, name),
            None => {}
        }
    }
}

/// Gives `new` every top-level field of `old` but the status and the metadata.
fn keep_body_but_status(new: &mut Value, old: &Value) {
    let (Some(fields), Some(old_fields)) = (new.as_object_mut(), old.as_object()) else { return };
    let own = |name: &str| matches!(name, "status" | "metadata" | "apiVersion" | "kind");
    fields.retain(|name, _| own(name));
    for (name, value) in old_fields.iter().filter(|(name, _)| !own(name)) {
        fields.insert(name.clone(), value.clone());
    }
}

/// A value as a field selector compares it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
