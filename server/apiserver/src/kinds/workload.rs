//! DaemonSets, Deployments, ReplicaSets and StatefulSets: stored, and not run.

use serde_json::{Value, json};

use super::{
    access::{entries, text},
    budget, pod,
};
use crate::kinds::field::FieldError;

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match object.pointer("/spec/selector") {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            errors.extend(budget::label_selector("spec.selector", selector));
            let labels = object.pointer("/spec/template/metadata/labels");
            let fits = entries(selector, "/matchLabels")
                .all(|(name, value)| labels.and_then(|all| all.get(name)) == Some(value));
            if !fits {
                let path = "spec.template.metadata.labels";
                let labels = labels.cloned().unwrap_or_default();
                let detail = "`selector` does not match template `labels`";
                errors.push(FieldError::invalid(path, &labels, detail));
            }
        }
    }
    if let Some(count) = object.pointer("/spec/replicas").filter(|one| one.as_i64() < Some(0)) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", count, detail));
    }
    if let Some(template) = object.pointer("/spec/template/spec") {
        errors.extend(pod::validate_spec(template, "spec.template.spec"));
        let policy = text(template, "/restartPolicy");
        if policy != "Always" {
            let path = "spec.template.spec.restartPolicy";
            errors.push(FieldError::not_supported(path, &json!(policy), &["Always"]));
        }
    }
    errors
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let selector = |object: &Value| object.pointer("/spec/selector").cloned().unwrap_or_default();
    if selector(new) == selector(old) {
        return Vec::new();
    }
    vec![FieldError::invalid("spec.selector", &selector(new), "field is immutable")]
}
