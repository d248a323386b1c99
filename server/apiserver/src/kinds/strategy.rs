//! Parts of an object that a write compares, or takes from the stored one.

use serde_json::{Map, Value};

use super::access::{keep, remove, set};

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
pub(super) fn keep_all_but_status(new: &mut Value, old: &Value) {
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
pub(super) fn keep_body_but_status(new: &mut Value, old: &Value) {
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
