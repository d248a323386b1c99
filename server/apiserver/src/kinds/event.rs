//! Events: one set of objects with two faces, core/v1 and events.k8s.io/v1.

use serde_json::{Map, Value};

use super::{
    BuiltIn,
    access::{number, text},
    names,
};
use crate::kinds::field::FieldError;

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

/// The reporter of a core event: its source, or else its reporting component.
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

/// Turns an events.k8s.io event into a core event, which is the stored form.
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
    if let Err(error) = crate::kinds::schema::catalogue::decode(face, object) {
        tracing::debug!(%error, "a stored event does not decode");
    }
}

const TYPES: [&str; 2] = ["Normal", "Warning"];

/// Fields are named as in the core face whichever face is used, `reportingController` apart.
pub(super) fn validate(face: BuiltIn, object: &Value) -> Vec<FieldError> {
    if face == BuiltIn::CoreEvent {
        return validate_either(object);
    }
    let core = as_core(object);
    let mut errors = validate_either(&core);
    errors.extend(validate_series(&core));
    if text(&core, "/eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(&core, "/type");
    if !TYPES.contains(&kind) {
        let detail = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid_text("type", "", &detail));
    }
    let source =
        ["/source/component", "/source/host"].iter().any(|one| !text(&core, one).is_empty());
    let unset = [
        ("firstTimestamp", text(&core, "/firstTimestamp").is_empty()),
        ("lastTimestamp", text(&core, "/lastTimestamp").is_empty()),
        ("count", number(&core, "/count").unwrap_or(0) == 0),
        ("source", !source),
    ];
    for (name, _) in unset.iter().filter(|(_, unset)| !unset) {
        errors.push(FieldError::invalid_text(*name, "", "needs to be unset"));
    }
    errors
}

/// What holds for both faces: an event without a time of its own is of the old style.
fn validate_either(object: &Value) -> Vec<FieldError> {
    let own = text(object, "/metadata/namespace");
    let theirs = text(object, "/involvedObject/namespace");
    let old_style = text(object, "/eventTime").is_empty();
    let fits = match (theirs.is_empty(), old_style) {
        (true, true) => matches!(own, "" | "default"),
        (true, false) => matches!(own, "default" | "kube-system"),
        (false, true) => own == theirs,
        (false, false) => true,
    };
    let mut errors = Vec::new();
    if !fits {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid_text("involvedObject.namespace", theirs, detail));
    }
    if !old_style {
        errors.extend(validate_reporter(object));
    }
    errors
}

/// The longest that the texts of an event may be, in bytes.
const MAX_TEXT: usize = 128;
const MAX_NOTE: usize = 1024;

fn validate_reporter(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let controller = text(object, "/reportingComponent");
    if controller.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    errors.extend(FieldError::invalid_for(
        "reportingController",
        controller,
        names::qualified(controller),
    ));
    for name in ["reportingInstance", "action", "reason"] {
        let value = text(object, &format!("/{name}"));
        if value.is_empty() {
            errors.push(FieldError::required(name, ""));
        } else if value.len() > MAX_TEXT {
            let detail = format!("can have at most {MAX_TEXT} characters");
            errors.push(FieldError::invalid_text(name, "", &detail));
        }
    }
    if text(object, "/message").len() > MAX_NOTE {
        let detail = format!("can have at most {MAX_NOTE} characters");
        errors.push(FieldError::invalid_text("message", "", &detail));
    }
    errors
}

fn validate_series(object: &Value) -> Vec<FieldError> {
    let Some(series) = object.get("series") else { return Vec::new() };
    let mut errors = Vec::new();
    if number(series, "/count").is_none_or(|count| count < 2) {
        errors.push(FieldError::invalid_text("series.count", "", "should be at least 2"));
    }
    if text(series, "/lastObservedTime").is_empty() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
    errors
}

/// Fields that never change on the events.k8s.io face, in the order they are named;
/// kube-apiserver looks at the reason twice.
const FIXED: [(&str, &str); 14] = [
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// On the events.k8s.io face only the series and the metadata of an event move.
pub(super) fn validate_update(face: BuiltIn, new: &Value, old: &Value) -> Vec<FieldError> {
    if face == BuiltIn::CoreEvent {
        return validate_either(new);
    }
    let (new, old) = (as_core(new), as_core(old));
    let mut errors = validate_either(&new);
    if new.get("series") != old.get("series") {
        errors.extend(validate_series(&new));
    }
    for (field, name) in FIXED.iter().filter(|(field, _)| new.get(field) != old.get(field)) {
        let value = new.get(field).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(*name, &value, "field is immutable"));
    }
    errors
}
