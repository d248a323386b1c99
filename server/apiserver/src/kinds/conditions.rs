//! Conditions in a status.

use serde_json::{Map, Value, json};

use crate::kinds::access::{keep, text};

/// The condition that a controller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: String,
}

/// Puts a condition into `status.conditions`. `lastTransitionTime` changes only if the status of the condition does.
/// Returns whether anything changed.
pub(crate) fn set(status: &mut Map<String, Value>, wanted: &Condition<'_>, now: &str) -> bool {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return false };
    let word = if wanted.status { "True" } else { "False" };
    let mut new = json!({"type": wanted.kind, "status": word, "lastTransitionTime": now,
        "reason": wanted.reason, "message": wanted.message});
    let old = conditions.iter_mut().find(|condition| text(condition, "/type") == wanted.kind);
    let Some(old) = old else {
        conditions.push(new);
        return true;
    };
    if text(old, "/status") == word {
        keep(&mut new, old, "lastTransitionTime");
    }
    let fields = ["status", "reason", "message"];
    let changed = fields.iter().any(|field| old.get(field) != new.get(field));
    if changed && let (Some(old), Value::Object(new)) = (old.as_object_mut(), new) {
        old.extend(new);
    }
    changed
}

/// A time as objects carry it.
pub(crate) fn stamp(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
