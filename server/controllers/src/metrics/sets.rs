//! Metrics of MachineSets, under upstream's names, computed from the cache at each scrape.

use std::fmt;
use std::sync::Arc;

use ostler_api::MachineSet;
use ostler_api::machine_set::{MachineSetStatus, MachineSummary};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::machines::{Series, number};
use crate::stores::Stores;
use crate::watch::Cache;

/// What the controller of sets counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SetMetrics {
    /// Machines that were deleted because their health failed.
    pub(crate) stale: Counter,
}

/// Registers the metrics of sets.
pub(crate) fn register_sets(registry: &mut Registry, stores: &Stores) -> SetMetrics {
    let metrics = SetMetrics::default();
    let help = "Machines that were deleted because their health failed";
    registry.register("mcm_machine_stale_machines", help, metrics.stale.clone());
    registry.register_collector(Box::new(SetCollector { sets: Arc::clone(&stores.sets) }));
    metrics
}

struct SetCollector {
    sets: Arc<Cache<MachineSet>>,
}

impl fmt::Debug for SetCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetCollector").finish_non_exhaustive()
    }
}

/// One number of a set.
type Number = fn(&MachineSet) -> i32;

const NUMBERS: [(&str, &str, Number); 6] = [
    ("mcm_machine_set_info_spec_replicas", "Machines that a set wants", |set| set.spec.replicas),
    ("mcm_machine_set_info_spec_min_ready_seconds", "Stored, and not enforced", |set| {
        set.spec.min_ready_seconds.unwrap_or_default()
    }),
    ("mcm_machine_set_status_replicas", "Machines of a set", |set| of(set, |it| it.replicas)),
    ("mcm_machine_set_status_ready_replicas", "Machines of a set that run", |set| {
        of(set, |it| it.ready_replicas)
    }),
    ("mcm_machine_set_status_available_replicas", "Machines of a set that are available", |set| {
        of(set, |it| it.available_replicas)
    }),
    (
        "mcm_machine_set_status_fully_labelled_replicas",
        "Machines of a set with every label of its template",
        |set| of(set, |it| it.fully_labeled_replicas),
    ),
];

fn of(set: &MachineSet, number: fn(&MachineSetStatus) -> i32) -> i32 {
    set.status.as_ref().map(number).unwrap_or_default()
}

impl Collector for SetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sets = self.sets.all();
        let name = "mcm_machine_set_items_total";
        let to = encoder.encode_descriptor(name, "MachineSets served", None, MetricType::Gauge)?;
        ConstGauge::new(number(sets.len())).encode(to)?;
        let mut gauges = |name: &str, help: &str, series: Vec<Series>| -> fmt::Result {
            let mut to = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                ConstGauge::new(value).encode(to.encode_family(&labels)?)?;
            }
            Ok(())
        };
        let infos = sets.iter().map(|set| (info(set), 1)).collect();
        gauges("mcm_machine_set_info", "What a set is", infos)?;
        for (name, help, number) in NUMBERS {
            let series = sets.iter().map(|set| (name_of(set), number(set).into())).collect();
            gauges(name, help, series)?;
        }
        gauges(
            "mcm_machine_set_status_condition",
            "A condition of a set: 1 True, 0 False, 2 Unknown",
            sets.iter().flat_map(|set| conditions(set)).collect(),
        )?;
        gauges(
            "mcm_machine_set_failed_machines",
            "A machine of a set whose last operation failed",
            sets.iter().flat_map(|set| failed(set)).collect(),
        )
    }
}

fn name_of(set: &MachineSet) -> Vec<(&'static str, String)> {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    vec![("name", set.name().to_owned()), ("namespace", namespace)]
}

fn info(set: &MachineSet) -> Vec<(&'static str, String)> {
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    let class = set.spec.machine_class.clone().unwrap_or_default();
    let mut labels = name_of(set);
    labels.extend([
        ("createdAt", created.unwrap_or_default().to_string()),
        ("spec_machine_class_api_group", class.api_group.unwrap_or_default()),
        ("spec_machine_class_kind", class.kind),
        ("spec_machine_class_name", class.name),
    ]);
    labels
}

fn conditions(set: &MachineSet) -> Vec<Series> {
    let all = set.status.iter().flat_map(|status| &status.conditions);
    all.map(|condition| {
        let mut labels = name_of(set);
        labels.push(("condition", condition.type_.to_string()));
        let value = match condition.status.as_str() {
            "True" => 1,
            "False" => 0,
            _ => 2,
        };
        (labels, value)
    })
    .collect()
}

fn failed(set: &MachineSet) -> Vec<Series> {
    let all = set.status.iter().flat_map(|status| status.failed_machines.iter().flatten());
    all.map(|machine| (failed_labels(set, machine), 1)).collect()
}

fn failed_labels(set: &MachineSet, machine: &MachineSummary) -> Vec<(&'static str, String)> {
    let last = machine.last_operation.clone().unwrap_or_default();
    let word = |word: Option<&str>| word.unwrap_or_default().to_owned();
    let mut labels = name_of(set);
    labels.extend([
        ("failed_machine_name", machine.name.clone().unwrap_or_default()),
        ("failed_machine_provider_id", machine.provider_id.clone().unwrap_or_default()),
        ("failed_machine_owner_ref", machine.owner_ref.clone().unwrap_or_default()),
        (
            "failed_machine_last_operation_state",
            word(last.state.as_ref().map(ostler_api::machine::MachineState::as_str)),
        ),
        (
            "failed_machine_last_operation_machine_operation_type",
            word(last.type_.as_ref().map(ostler_api::machine::MachineOperationType::as_str)),
        ),
    ]);
    labels
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_has_the_series_that_dashboards_read_and_one_that_is_gone_has_none() {
        let (mut registry, stores) = (Registry::default(), Stores::default());
        let _metrics = register_sets(&mut registry, &stores);
        let set: MachineSet = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s", "namespace": "default" },
            "spec": { "replicas": 3 },
            "status": {
                "replicas": 2, "readyReplicas": 1,
                "machineSetCondition": [{ "type": "Frozen", "status": "True" }],
                "failedMachines": [{ "name": "m", "lastOperation": { "state": "Failed" } }]
            }
        }))
        .unwrap();
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        stores.sets.apply(Event::Apply(set.clone()));
        let text = scrape();
        let name = r#"{name="s",namespace="default""#;
        for series in [
            "mcm_machine_set_items_total 1".to_owned(),
            format!("mcm_machine_set_info_spec_replicas{name}}} 3"),
            format!("mcm_machine_set_status_replicas{name}}} 2"),
            format!("mcm_machine_set_status_ready_replicas{name}}} 1"),
            format!("mcm_machine_set_status_condition{name},condition=\"Frozen\"}} 1"),
            "mcm_machine_stale_machines_total 0".to_owned(),
        ] {
            assert!(text.contains(&series), "{series} is not in {text}");
        }
        stores.sets.apply(Event::Delete(set));
        assert!(!scrape().contains(name));
    }
}
