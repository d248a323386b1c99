//! The quality-of-service class of a pod.

use serde_json::Value;

use crate::kinds::access::{entries, items};

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`, from what the containers ask for.
pub(super) fn class(spec: &Value) -> &'static str {
    let containers = || items(spec, "/containers").iter().chain(items(spec, "/initContainers"));
    let counts = |container: &Value, list: &str| {
        entries(container, list)
            .any(|(name, value)| COUNTED.contains(&name.as_str()) && value != "0")
    };
    let asks = |container: &Value| {
        counts(container, "/resources/requests") || counts(container, "/resources/limits")
    };
    let guaranteed = |container: &Value| {
        COUNTED.iter().all(|name| {
            let of = |list: &str| container.pointer(&format!("/resources/{list}/{name}"));
            let limit = of("limits");
            limit.is_some() && limit == of("requests").or(limit)
        })
    };
    if !containers().any(asks) {
        "BestEffort"
    } else if containers().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
