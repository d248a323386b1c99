//! Workloads: stored, and run by kube-controller-manager if one is there.

use serde_json::{Value, json};

use super::{
    BuiltIn,
    access::{entries, text},
    budget, pod,
};
use crate::kinds::field::{FieldError, FieldErrorKind, child};

const COUNTS: [&str; 3] = ["replicas", "minReadySeconds", "revisionHistoryLimit"];

pub(super) fn validate(kind: BuiltIn, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in COUNTS.into_iter().chain(["parallelism", "completions", "backoffLimit"]) {
        let count = object.pointer(&format!("/spec/{name}"));
        if let Some(count) = count.filter(|count| count.as_i64() < Some(0)) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(child("spec", name), count, detail));
        }
    }
    let selector = object.pointer("/spec/selector");
    match selector {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => errors.extend(budget::label_selector("spec.selector", selector)),
    }
    let labels = object.pointer("/spec/template/metadata/labels");
    let fits = |selector: &Value| {
        entries(selector, "/matchLabels")
            .all(|(name, value)| labels.and_then(|all| all.get(name)) == Some(value))
    };
    if !selector.is_some_and(fits) {
        let path = "spec.template.metadata.labels";
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(path, &labels.cloned().unwrap_or_default(), detail));
    }
    errors.extend(validate_template(kind, object.pointer("/spec/template/spec")));
    if kind == BuiltIn::Deployment {
        errors.extend(validate_strategy(object));
    }
    errors
}

fn validate_template(kind: BuiltIn, template: Option<&Value>) -> Vec<FieldError> {
    let template = template.unwrap_or(&Value::Null);
    let mut errors = pod::validate_spec(template, "spec.template.spec");
    let (policy, path) = (text(template, "/restartPolicy"), "spec.template.spec.restartPolicy");
    if kind == BuiltIn::Job {
        if matches!(policy, "" | "Always") {
            errors.push(FieldError::required(path, "valid values: \"OnFailure\", \"Never\""));
        }
    } else if !matches!(policy, "" | "Always") {
        errors.push(FieldError::not_supported(path, &json!(policy), &["Always"]));
    }
    errors
}

fn validate_strategy(object: &Value) -> Option<FieldError> {
    let none = |field: &str| {
        let value = object.pointer(&format!("/spec/strategy/rollingUpdate/{field}"));
        value.filter(|value| matches!(value.as_str(), Some("0%")) || value.as_i64() == Some(0))
    };
    let rolling = "spec.strategy.rollingUpdate";
    match text(object, "/spec/strategy/type") {
        "RollingUpdate" => none("maxSurge").and_then(|_| none("maxUnavailable")).map(|value| {
            let detail = "may not be 0 when `maxSurge` is 0";
            FieldError::invalid(child(rolling, "maxUnavailable"), value, detail)
        }),
        "Recreate" => object.pointer("/spec/strategy/rollingUpdate").map(|_| {
            FieldError::forbidden(
                rolling,
                "may not be specified when strategy `type` is 'Recreate'",
            )
        }),
        other => {
            let body = format!(
                "Unsupported value: {{\"Type\":{},\"RollingUpdate\":null}}: supported values: \"Recreate\", \"RollingUpdate\"",
                json!(other)
            );
            Some(FieldError::verbatim(FieldErrorKind::NotSupported, "spec.strategy", &body))
        }
    }
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let selector = |object: &Value| object.pointer("/spec/selector").cloned().unwrap_or_default();
    if selector(new) == selector(old) {
        return Vec::new();
    }
    vec![FieldError::invalid("spec.selector", &selector(new), "field is immutable")]
}
