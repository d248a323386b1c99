//! What a check has to be like before anything is done for it, as far as the definition cannot say it. That nothing is
//! selected by an empty selector is said here, too: each machine would be replaced.

use std::time::Duration;

use ostler_api::{MachineHealthCheck, machine_health_check::fields};

use super::{limit, verdict::startup_timeout};
use crate::selector;

/// A shorter time for a Node to come would replace Machines that are on their way.
const LEAST_STARTUP: Duration = Duration::from_secs(30);

/// The broken rules of a check's spec: the field, its value, and what to do.
pub(super) fn broken(check: &MachineHealthCheck) -> Vec<String> {
    let spec = &check.spec;
    let mut broken = Vec::new();
    if spec.selector.as_ref().is_none_or(selector::is_empty) {
        broken.push(
            "spec.selector is empty and would select every machine: give matchLabels or matchExpressions"
                .to_owned(),
        );
    }
    for rule in spec.node_rules() {
        let field = format!("{}[{}]", rule.field, rule.at);
        if rule.timeout.is_none() {
            broken.push(format!("{field}.timeout is no duration: write e.g. 5m"));
        }
    }
    let named = |old: bool, [one, other]: [&'static str; 2]| if old { one } else { other };
    if limit::bounds(check, 1).is_none() {
        match (spec.range_of_unhealthy(), spec.most_unhealthy()) {
            (Some(range), _) => broken.push(format!(
                "{} is {range:?}: write e.g. [3-5], the smaller number first",
                named(spec.unhealthy_range.is_some(), fields::RANGE)
            )),
            (None, most) => {
                let most = serde_json::to_string(&most).unwrap_or_default();
                broken.push(format!(
                    "{} is {most}: write a number such as 2, or a percentage such as 40%",
                    named(spec.max_unhealthy.is_some(), fields::MOST_UNHEALTHY)
                ));
            }
        }
    }
    let of_startup = named(spec.node_startup_timeout.is_some(), fields::STARTUP_TIMEOUT);
    match startup_timeout(check) {
        Some(limit) if limit.is_zero() || limit >= LEAST_STARTUP => {}
        Some(limit) => broken.push(format!(
            "{of_startup} is {}s: write 30s or more, or 0 for no limit",
            limit.as_secs()
        )),
        None => broken.push(format!("{of_startup} is no duration: write e.g. 10m")),
    }
    let twice = spec.said_twice();
    broken.extend(twice.map(|[old, new]| format!("{old} and {new} say the same: keep one")));
    broken
}
