//! Services: stored, and not served.

use serde_json::{Value, json};

use super::access::{items, items_mut, preset, text};
use crate::kinds::field::{FieldError, child, index};

pub(super) fn default(object: &mut Value) {
    for port in items_mut(object, "/spec/ports") {
        if let Some(number) = port.get("port").cloned() {
            preset(port, "targetPort", number);
        }
    }
}

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(object, "/spec/type");
    let headless = text(object, "/spec/clusterIP") == "None";
    let ports = items(object, "/spec/ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (position, port) in ports.iter().enumerate() {
        if ports.len() > 1 && text(port, "/name").is_empty() {
            let path = child(&index("spec.ports", position), "name");
            errors.push(FieldError::required(path, ""));
        }
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let path = child(&index("spec.ports", position), "port");
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(path, &json!(number), detail));
        }
    }
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", &json!(kind), &TYPES));
    }
    errors
}
