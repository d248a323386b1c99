//! Merge patches (RFC 7386) from the stored state to the wanted state.

use k8s_openapi::serde::Serialize;
use serde_json::{Value, json};

/// The merge patch of a status of any kind, which removes absent fields; `None`: the stored status is the same.
pub(crate) fn difference<S: Serialize>(old: Option<&S>, new: &S) -> Option<Value> {
    let value = |status| serde_json::to_value(status).unwrap_or_default();
    merge_patch(&old.map_or_else(|| json!({}), value), &value(new))
}

/// The merge patch (RFC 7386) that turns one value into another; `None` if nothing differs.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = serde_json::Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        let change = match from.get(key) {
            Some(before) => merge_patch(before, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
