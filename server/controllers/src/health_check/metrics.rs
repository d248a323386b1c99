//! Metrics of MachineHealthChecks. The metrics of each check are computed from the cache at each
//! scrape.

use std::fmt;
use std::sync::Arc;

use ostler_api::machine_health_check::{MachineHealthCheckStatus, UnhealthyReason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::metrics::{Leads, condition, gauges, name_of};
use crate::stores::{CheckIndex, Stores};
use crate::watch::Cache;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

/// The counters of the controller of checks.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckMetrics(Family<Reason, Counter>);

impl CheckMetrics {
    /// A Machine was marked for this.
    pub(super) fn count(&self, reason: &UnhealthyReason) {
        self.0.get_or_create(&Reason { reason: reason.to_string() }).inc();
    }
}

/// Registers the metrics of checks.
pub(crate) fn register_checks(
    registry: &mut Registry,
    stores: &Stores,
    leads: &Leads,
) -> CheckMetrics {
    let metrics = CheckMetrics::default();
    registry.register(
        "ostler_machine_health_check_marks",
        "Machines that a health check found unhealthy, and that may be replaced for it",
        metrics.0.clone(),
    );
    leads.register_collector(registry, Checks(Arc::clone(&stores.checks)));
    metrics
}

#[derive(Debug)]
struct Checks(Arc<Cache<CheckIndex>>);

/// One number of a check.
type Number = fn(&MachineHealthCheckStatus) -> i32;

const NUMBERS: [(&str, &str, Number); 3] = [
    ("ostler_machine_health_check_expected_machines", "Machines that a check looks at", |it| {
        it.expected_machines
    }),
    ("ostler_machine_health_check_current_healthy", "Healthy machines of a check", |it| {
        it.current_healthy
    }),
    (
        "ostler_machine_health_check_remediations_allowed",
        "How many more machines of a check may become unhealthy before none is replaced",
        |it| it.remediations_allowed,
    ),
];

impl Collector for Checks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let checks = self.0.all();
        let with_status = || checks.iter().filter_map(|it| Some((it, it.status.as_ref()?)));
        for (name, help, number) in NUMBERS {
            let series = with_status()
                .map(|(check, status)| (name_of(check.as_ref()), i64::from(number(status))));
            gauges(&mut encoder, name, help, series)?;
        }
        let conditions = with_status().flat_map(|(check, status)| {
            let all = status.conditions.iter();
            all.map(|it| condition(check.as_ref(), it.type_.clone(), &it.status))
        });
        let help = "A condition of a check: 1 True, 0 False, 2 Unknown";
        gauges(&mut encoder, "ostler_machine_health_check_condition", help, conditions)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use ostler_api::MachineHealthCheck;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_has_its_numbers_and_one_that_is_gone_has_none() {
        let (mut registry, stores) = (Registry::default(), Stores::default());
        let leads = Leads::default();
        let metrics = register_checks(&mut registry, &stores, &leads);
        let _leading = leads.begin();
        metrics.count(&UnhealthyReason::NodeDeleted);
        let check: MachineHealthCheck = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": "c", "namespace": "default" }, "spec": {},
            "status": {
                "expectedMachines": 3, "currentHealthy": 2, "remediationsAllowed": 2,
                "conditions": [{
                    "type": "RemediationAllowed", "status": "True", "reason": "RemediationAllowed",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
                }]
            }
        }))
        .unwrap();
        stores.checks.apply(Event::Apply(check.clone()));
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let (text, name) = (scrape(), r#"{name="c",namespace="default""#);
        for series in [
            format!("ostler_machine_health_check_expected_machines{name}}} 3"),
            format!("ostler_machine_health_check_current_healthy{name}}} 2"),
            format!("ostler_machine_health_check_remediations_allowed{name}}} 2"),
            format!(
                "ostler_machine_health_check_condition{name},condition=\"RemediationAllowed\"}} 1"
            ),
            "ostler_machine_health_check_marks_total{reason=\"NodeDeleted\"} 1".to_owned(),
        ] {
            assert!(text.contains(&series), "{series} is not in {text}");
        }
        stores.checks.apply(Event::Delete(check));
        assert!(!scrape().contains(name));
    }
}
