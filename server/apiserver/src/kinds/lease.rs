//! Leases.

use serde_json::{Value, json};

use super::access::number;
use crate::kinds::field::FieldError;

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = number(object, "/spec/leaseDurationSeconds").filter(|one| *one <= 0) {
        let path = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(path, &json!(seconds), "must be greater than 0"));
    }
    if let Some(count) = number(object, "/spec/leaseTransitions").filter(|one| *one < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", &json!(count), detail));
    }
    errors
}
