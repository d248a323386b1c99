//! PodDisruptionBudgets.

use serde_json::Value;

use super::{
    access::{entries, items, text},
    names,
};
use crate::kinds::field::{FieldError, FieldErrorKind, child, index};

const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let Some(spec) = object.get("spec") else { return Vec::new() };
    let mut errors = Vec::new();
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let body = format!(
            "Invalid value: {}: minAvailable and maxUnavailable cannot be both set",
            as_typed(spec)
        );
        errors.push(FieldError::verbatim(FieldErrorKind::Invalid, "spec", &body));
    }
    for name in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = spec.get(name) {
            errors.extend(amount(&child("spec", name), value));
        }
    }
    if let Some(selector) = spec.get("selector") {
        errors.extend(label_selector("spec.selector", selector));
    }
    if let Some(policy) = spec.get("unhealthyPodEvictionPolicy")
        && !POLICIES.contains(&policy.as_str().unwrap_or_default())
    {
        let path = "spec.unhealthyPodEvictionPolicy";
        errors.push(FieldError::not_supported(path, policy, &POLICIES));
    }
    errors
}

fn as_typed(spec: &Value) -> String {
    let of = |name: &str| spec.get(name).cloned().unwrap_or_default();
    format!(
        r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
        of("minAvailable"),
        of("selector"),
        of("maxUnavailable"),
        of("unhealthyPodEvictionPolicy"),
    )
}

fn amount(path: &str, value: &Value) -> Option<FieldError> {
    if let Some(number) = value.as_i64() {
        let negative = number < 0;
        let detail = "must be greater than or equal to 0";
        return negative.then(|| FieldError::invalid(path, value, detail));
    }
    let digits = value.as_str().and_then(|text| text.strip_suffix('%')).unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
        return Some(FieldError::invalid(path, value, detail));
    }
    let too_much = digits.parse::<u64>().map_or(true, |percent| percent > 100);
    too_much.then(|| FieldError::invalid(path, value, "must not be greater than 100%"))
}

const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// The errors of a label selector.
pub(super) fn label_selector(path: &str, selector: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = child(path, "matchLabels");
    for (name, value) in entries(selector, "/matchLabels") {
        errors.extend(FieldError::invalid_for(&labels, name, names::qualified(name)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(FieldError::invalid_for(&labels, value, names::label_value(value)));
    }
    for (position, expression) in items(selector, "/matchExpressions").iter().enumerate() {
        let path = index(&child(path, "matchExpressions"), position);
        let values = items(expression, "/values");
        match text(expression, "/operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                child(&path, "values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                child(&path, "values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            operator if OPERATORS.contains(&operator) => {}
            operator => errors.push(FieldError::invalid_text(
                child(&path, "operator"),
                operator,
                "not a valid selector operator",
            )),
        }
        let key = text(expression, "/key");
        errors.extend(FieldError::invalid_for(&child(&path, "key"), key, names::qualified(key)));
    }
    errors
}
