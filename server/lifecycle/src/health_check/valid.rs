//! What a check has to be like before anything is done for it. What the definition can refuse, the API server refuses; an
//! API server that knows no rules stores it, and a condition says the same.

use std::time::Duration;

use ostler_api::MachineHealthCheck;

use super::{limit, verdict::startup_timeout};
use crate::selector;

/// A shorter time for a Node to come would replace Machines that are on their way.
const LEAST_STARTUP: Duration = Duration::from_secs(30);

/// The rules that the spec of a check breaks: the field, what it says, and what to do.
pub(super) fn broken(check: &MachineHealthCheck) -> Vec<String> {
    let spec = &check.spec;
    let mut broken = Vec::new();
    if spec.selector.as_ref().is_none_or(selector::is_empty) {
        broken.push(
            "spec.selector is empty and would select every machine: give matchLabels or matchExpressions"
                .to_owned(),
        );
    }
    for (at, one) in spec.unhealthy_conditions.iter().enumerate() {
        let field = format!("spec.unhealthyConditions[{at}]");
        if one.type_.is_empty() {
            broken.push(format!("{field}.type is empty: name a condition of a node, e.g. Ready"));
        }
        if !["True", "False", "Unknown"].contains(&one.status.as_str()) {
            broken
                .push(format!("{field}.status is {:?}: write True, False or Unknown", one.status));
        }
        if one.timeout.duration().is_none() {
            broken.push(format!("{field}.timeout is no duration: write e.g. 5m"));
        }
    }
    if limit::bounds(check, 1).is_none() {
        match (&spec.unhealthy_range, &spec.max_unhealthy) {
            (Some(range), _) => broken.push(format!(
                "spec.unhealthyRange is {range:?}: write e.g. [3-5], the smaller number first"
            )),
            (None, most) => {
                let most = serde_json::to_string(most).unwrap_or_default();
                broken.push(format!(
                    "spec.maxUnhealthy is {most}: write a number such as 2, or a percentage such as 40%"
                ));
            }
        }
    }
    match startup_timeout(check) {
        Some(limit) if limit.is_zero() || limit >= LEAST_STARTUP => {}
        Some(limit) => broken.push(format!(
            "spec.nodeStartupTimeout is {}s: write 30s or more, or 0 for no limit",
            limit.as_secs()
        )),
        None => broken.push("spec.nodeStartupTimeout is no duration: write e.g. 10m".to_owned()),
    }
    if spec.remediation_template.is_some() {
        broken.push(
            "spec.remediationTemplate is not supported: remove it; the set or the pool of a machine replaces it"
                .to_owned(),
        );
    }
    broken
}
