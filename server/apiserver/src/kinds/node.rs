//! Nodes.

use serde_json::{Value, json};

use super::{
    access::{flag, items, object_in, preset, text},
    names,
};
use crate::field::{FieldError, FieldErrorKind, child, index, quote};

/// What can be allocated is the capacity, unless somebody says otherwise.
pub(super) fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        let range = text(spec, "/podCIDR").to_owned();
        if !range.is_empty() {
            preset(spec, "podCIDRs", json!([range]));
        }
    }
    let Some(status) = object.get_mut("status") else { return };
    if let Some(capacity) = status.get("capacity").cloned() {
        preset(status, "allocatable", capacity);
    }
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A new node takes no pods before somebody has seen it ready.
pub(super) fn prepare_create(object: &mut Value) {
    super::access::preset(object, "status", json!({}));
    if let Err(error) = crate::schema::catalogue::decode(super::BuiltIn::Node, object) {
        tracing::debug!(%error, "a decoded node does not decode again");
    }
    let is_not_ready =
        |taint: &Value| text(taint, "/key") == NOT_READY && text(taint, "/effect") == "NoSchedule";
    if items(object, "/spec/taints").iter().any(is_not_ready) {
        return;
    }
    let Some(spec) = object_in(object, "spec") else { return };
    preset(spec, "taints", json!([]));
    if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
        taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let taints = items(object, "/spec/taints");
    let mut errors = Vec::new();
    for (position, taint) in taints.iter().enumerate() {
        // kube-apiserver names this path, though the taints are in the spec
        let path = index("metadata.taints", position);
        let key = text(taint, "/key");
        for problem in names::qualified(key) {
            errors.push(FieldError::invalid_text(child(&path, "key"), key, &problem));
        }
        let value = text(taint, "/value");
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid_text(child(&path, "value"), value, &problem));
        }
        let effect = text(taint, "/effect");
        if effect.is_empty() {
            errors.push(FieldError::required(child(&path, "effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            let path = child(&path, "effect");
            errors.push(FieldError::not_supported(path, &json!(effect), &EFFECTS));
        }
        let same = |one: &Value| text(one, "/key") == key && text(one, "/effect") == effect;
        if taints.iter().take(position).any(same) {
            errors.push(duplicate(&path, taint));
        }
    }
    errors
}

fn duplicate(path: &str, taint: &Value) -> FieldError {
    let shown = |name: &str| quote(text(taint, name));
    let added = taint.get("timeAdded").cloned().unwrap_or_default();
    let body = format!(
        r#"Duplicate value: {{"Key":{},"Value":{},"Effect":{},"TimeAdded":{added}}}: taints must be unique by key and effect pair"#,
        shown("/key"),
        shown("/value"),
        shown("/effect"),
    );
    FieldError::verbatim(FieldErrorKind::Duplicate, path, &body)
}

/// The taints are checked a second time, as kube-apiserver does: its answer names each error twice.
pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    let (before, after) = (text(old, "/spec/providerID"), text(new, "/spec/providerID"));
    if !before.is_empty() && before != after {
        let detail = r#"node updates may not change providerID except from "" to valid"#;
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
    errors
}

/// `Ready`, `NotReady` or `Unknown`, and whether scheduling is off, as tables show it.
pub(crate) fn summary(node: &Value) -> String {
    let ready = items(node, "/status/conditions").iter().find(|one| text(one, "/type") == "Ready");
    let mut words = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(node, "/spec/unschedulable") {
        words.push_str(",SchedulingDisabled");
    }
    words
}
