//! Events: one set of objects with two faces, core/v1 and events.k8s.io/v1.

use serde_json::{Map, Value};

use super::{
    BuiltIn,
    access::{number, text},
};
use crate::field::{FieldError, child};

pub(super) const CORE_FIELD_LABELS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
];

pub(super) const FIELD_LABELS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Who reported a core event: its source, or else its reporting component.
pub(crate) fn source(object: &Value) -> String {
    let component = text(object, "/source/component");
    if component.is_empty() { text(object, "/reportingComponent") } else { component }.to_owned()
}

/// Names of the same field: core/v1 on the left, events.k8s.io/v1 on the right.
const FACES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Turns the events.k8s.io face into the core one, which is the one that is stored.
pub(super) fn to_core(object: &mut Value) {
    rename(object, |(core, face)| (face, core), "v1");
    normalize(BuiltIn::CoreEvent, object);
}

/// A copy of an events.k8s.io event with its core face.
pub(crate) fn as_core(object: &Value) -> Value {
    let mut copy = object.clone();
    to_core(&mut copy);
    copy
}

/// Turns the core face into the events.k8s.io one.
pub(super) fn from_core(object: &mut Value) {
    rename(object, |(core, face)| (core, face), "events.k8s.io/v1");
    normalize(BuiltIn::Event, object);
}

fn rename(
    object: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
    api_version: &str,
) {
    let Some(fields) = object.as_object_mut() else { return };
    let mut renamed = Map::new();
    for (from, to) in FACES.map(direction) {
        if let Some(value) = fields.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    fields.append(&mut renamed);
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
}

/// Shows and leaves out empty fields as the face does.
fn normalize(face: BuiltIn, object: &mut Value) {
    if face == BuiltIn::Event
        && let Some(fields) = object.as_object_mut()
    {
        let empty = |value: &Value| value.as_str() == Some("");
        fields.retain(|_, value| !empty(value));
    }
    if let Err(error) = crate::schema::catalogue::decode(face, object) {
        tracing::debug!(%error, "a stored event does not decode");
    }
}

const TYPES: [&str; 2] = ["Normal", "Warning"];

pub(super) fn validate(face: BuiltIn, object: &Value) -> Vec<FieldError> {
    let about = if face == BuiltIn::Event { "regarding" } else { "involvedObject" };
    let mut errors: Vec<FieldError> = namespaces(object, about).into_iter().collect();
    if face == BuiltIn::Event {
        errors.extend(validate_strict(object));
    } else if !text(object, "/eventTime").is_empty() {
        errors.extend(validate_reporter(object, "reportingComponent"));
    }
    errors
}

/// An event lives where the object it is about lives; about a cluster-scoped one in `default`.
fn namespaces(object: &Value, about: &str) -> Option<FieldError> {
    let own = text(object, "/metadata/namespace");
    let theirs = text(object, &format!("/{about}/namespace"));
    let fits = if theirs.is_empty() { matches!(own, "" | "default") } else { own == theirs };
    // kube-apiserver names the core field on both faces
    let path = "involvedObject.namespace";
    (!fits).then(|| FieldError::invalid_text(path, theirs, "does not match event.namespace"))
}

fn validate_strict(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(object, "/eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    errors.extend(validate_reporter(object, "reportingController"));
    let kind = text(object, "/type");
    if !TYPES.contains(&kind) {
        errors.push(FieldError::invalid_shown(
            "type",
            "\"\"",
            &format!("has invalid value: {kind}"),
        ));
    }
    for name in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        if !text(object, &format!("/{name}")).is_empty() {
            let value = object.get(name).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(name, &value, "needs to be unset"));
        }
    }
    if let Some(count) = number(object, "/deprecatedCount").filter(|count| *count != 0) {
        errors.push(FieldError::invalid("deprecatedCount", &count.into(), "needs to be unset"));
    }
    errors
}

fn validate_reporter(object: &Value, controller: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in [controller, "reportingInstance", "action", "reason"] {
        let value = text(object, &format!("/{name}"));
        if value.is_empty() {
            errors.push(FieldError::required(child("", name), ""));
        } else if value.len() > 128 {
            let detail = "can have at most 128 characters";
            errors.push(FieldError::invalid_text(name, value, detail));
        }
    }
    let note = if controller == "reportingController" { "note" } else { "message" };
    if text(object, &format!("/{note}")).len() > 1024 {
        errors.push(FieldError::invalid_text(note, "", "can have at most 1024 characters"));
    }
    errors
}

/// On the events.k8s.io face only the series of an event moves.
pub(super) fn validate_update(face: BuiltIn, new: &Value, old: &Value) -> Vec<FieldError> {
    if face == BuiltIn::CoreEvent {
        return validate(face, new);
    }
    let fixed = [
        "regarding",
        "related",
        "reason",
        "action",
        "note",
        "type",
        "eventTime",
        "reportingController",
        "reportingInstance",
    ];
    let changed = fixed.iter().filter(|name| new.get(*name) != old.get(*name));
    let refuse = |name: &&str| {
        let value = new.get(*name).cloned().unwrap_or_default();
        FieldError::invalid(*name, &value, "field is immutable")
    };
    let mut errors = validate_strict_series(new);
    errors.extend(changed.map(refuse));
    errors
}

fn validate_strict_series(object: &Value) -> Vec<FieldError> {
    let Some(series) = object.get("series") else { return Vec::new() };
    let mut errors = Vec::new();
    if number(series, "/count").is_none_or(|count| count < 2) {
        let count = series.get("count").cloned().unwrap_or_default();
        errors.push(FieldError::invalid("series.count", &count, "should be at least 2"));
    }
    if text(series, "/lastObservedTime").is_empty() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
    errors
}
