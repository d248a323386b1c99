//! Fields of a pod that may change.

use serde_json::{Value, json};

use crate::kinds::{
    access::{items, items_mut, number, remove, set, text},
    field::FieldError,
};

const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(in crate::kinds) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["containers", "initContainers"] {
        let pointer = format!("/spec/{list}");
        if items(new, &pointer).len() != items(old, &pointer).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
            return errors;
        }
        for (position, container) in items(new, &pointer).iter().enumerate() {
            if text(container, "/image").is_empty() {
                let path = format!("spec.{list}[{position}].image");
                errors.push(FieldError::required(path, ""));
            }
        }
    }
    errors.extend(validate_deadline(new, old));
    errors.extend(validate_tolerations(new, old));
    if !errors.is_empty() {
        return errors;
    }
    if rest(new, old) != rest(old, old) {
        errors.push(FieldError::forbidden("spec", &format!("{FORBIDDEN}\n")));
    }
    errors
}

fn validate_deadline(new: &Value, old: &Value) -> Option<FieldError> {
    let path = "spec.activeDeadlineSeconds";
    let (before, after) =
        (number(old, "/spec/activeDeadlineSeconds"), number(new, "/spec/activeDeadlineSeconds"));
    match (before, after) {
        (_, Some(after)) if after < 0 || after > i64::from(i32::MAX) => {
            let detail = "must be between 0 and 2147483647, inclusive";
            Some(FieldError::invalid(path, &json!(after), detail))
        }
        (Some(before), Some(after)) if after > before => {
            let detail = "must be less than or equal to previous value";
            Some(FieldError::invalid(path, &json!(after), detail))
        }
        (Some(_), None) => {
            let detail = "must not update from a positive integer to nil value";
            Some(FieldError::invalid_shown(path, "null", detail))
        }
        _ => None,
    }
}

/// Tolerations may be added; of those there only the seconds may change.
fn validate_tolerations(new: &Value, old: &Value) -> Option<FieldError> {
    let bare = |toleration: &Value| {
        let mut bare = toleration.clone();
        remove(&mut bare, "tolerationSeconds");
        bare
    };
    let after: Vec<Value> = items(new, "/spec/tolerations").iter().map(bare).collect();
    let all_kept = items(old, "/spec/tolerations").iter().all(|one| after.contains(&bare(one)));
    let detail = "existing toleration can not be modified except its tolerationSeconds";
    (!all_kept).then(|| FieldError::forbidden("spec.tolerations", detail))
}

/// The spec of `pod`, with what may change taken from `old`.
fn rest(pod: &Value, old: &Value) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    for list in ["/containers", "/initContainers"] {
        let images = items(old, &format!("/spec{list}")).iter().map(|one| one.get("image"));
        for (container, image) in items_mut(&mut spec, list).zip(images) {
            if let Some(image) = image {
                set(container, "image", image.clone());
            }
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations"] {
        remove(&mut spec, name);
    }
    spec
}

pub(in crate::kinds) fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let nominated = text(new, "/status/nominatedNodeName");
    let bound = !text(new, "/spec/nodeName").is_empty();
    let moved = nominated != text(old, "/status/nominatedNodeName");
    let mut errors = Vec::new();
    if moved && bound && !nominated.is_empty() {
        let detail = "may not be set on a pod that is bound to a node";
        errors.push(FieldError::forbidden("status.nominatedNodeName", detail));
    }
    for (position, status) in items(new, "/status/containerStatuses").iter().enumerate() {
        if text(status, "/name").is_empty() {
            let path = format!("status.containerStatuses[{position}].name");
            errors.push(FieldError::required(path, ""));
        }
    }
    errors
}
