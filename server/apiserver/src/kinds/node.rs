//! Nodes.

use ostler_quantity::Quantity;
use serde_json::{Value, json};

use super::{
    access::{entries, flag, items, object_in, preset, text},
    names,
};
use crate::kinds::{
    field::{FieldError, FieldErrorKind, child, index, quote},
    schema::formats,
};

/// Presets the allocatable resources with the capacity.
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

/// A new node takes no pods before a controller has seen it ready.
pub(super) fn prepare_create(object: &mut Value) {
    preset(object, "status", json!({}));
    if let Err(error) = crate::kinds::schema::catalogue::decode(super::BuiltIn::Node, object) {
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
    let mut errors = validate_taints(object);
    errors.extend(validate_resources(object));
    for (position, range) in items(object, "/spec/podCIDRs").iter().enumerate() {
        if !formats::matches("cidr", range.as_str().unwrap_or_default()) {
            let path = index("spec.podCIDRs", position);
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(path, range, detail));
        }
    }
    errors
}

fn validate_taints(object: &Value) -> Vec<FieldError> {
    let taints = items(object, "/spec/taints");
    let mut errors = Vec::new();
    for (position, taint) in taints.iter().enumerate() {
        // kube-apiserver names this path, though the taints are in the spec
        let path = index("metadata.taints", position);
        let key = text(taint, "/key");
        errors.extend(FieldError::invalid_for(&child(&path, "key"), key, names::qualified(key)));
        let value = text(taint, "/value");
        errors.extend(FieldError::invalid_for(
            &child(&path, "value"),
            value,
            names::label_value(value),
        ));
        let effect = text(taint, "/effect");
        errors.extend(FieldError::unless_one_of(&child(&path, "effect"), effect, &EFFECTS));
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
    let mut errors = validate_resources(new);
    errors.extend(validate_addresses(new));
    let ranges = items(old, "/spec/podCIDRs");
    if !ranges.is_empty() && ranges != items(new, "/spec/podCIDRs") {
        let detail = r#"node updates may not change podCIDR except from "" to valid"#;
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    errors.extend(validate_taints(new));
    let (before, after) = (text(old, "/spec/providerID"), text(new, "/spec/providerID"));
    if !before.is_empty() && before != after {
        let detail = r#"node updates may not change providerID except from "" to valid"#;
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
    errors
}

fn validate_resources(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["capacity", "allocatable"] {
        for (name, value) in entries(node, &format!("/status/{list}")) {
            let amount = Quantity::parse(value.as_str().unwrap_or_default());
            if amount.is_some_and(|amount| amount.nanos() < 0) {
                let path = format!("status.{list}.{name}");
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(path, value, detail));
            }
        }
    }
    errors
}

fn validate_addresses(node: &Value) -> Vec<FieldError> {
    let addresses = items(node, "/status/addresses");
    let repeated = addresses
        .iter()
        .enumerate()
        .filter(|(at, address)| addresses.iter().take(*at).any(|one| one == *address));
    let refuse = |(at, address): (usize, &Value)| {
        let body = format!(
            r#"Duplicate value: {{"Type":{},"Address":{}}}"#,
            quote(text(address, "/type")),
            quote(text(address, "/address")),
        );
        FieldError::verbatim(FieldErrorKind::Duplicate, index("status.addresses", at), &body)
    };
    repeated.map(refuse).collect()
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
