//! Metrics of MachineSets, under upstream's names, computed from the cache at each scrape.

use std::fmt;
use std::sync::Arc;

use ostler_api::MachineSet;
use ostler_api::machine_set::MachineSetStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::leads::Leads;
use super::series::{Series, condition, failed, gauges, info, name_of, total};
use crate::stores::{SetIndex, Stores};
use crate::unseen::Unseen;
use crate::watch::Cache;

/// The counters of the controller of sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct SetMetrics {
    /// Machines deleted because of their failed health.
    pub(crate) stale: Counter,
}

/// Registers the metrics of sets.
pub(crate) fn register_sets(registry: &mut Registry, stores: &Stores, leads: &Leads) -> SetMetrics {
    let metrics = SetMetrics::default();
    let help = "Machines that were deleted because their health failed";
    registry.register("mcm_machine_stale_machines", help, metrics.stale.clone());
    let (sets, unseen) = (Arc::clone(&stores.sets), Arc::clone(&stores.unseen));
    leads.register_collector(registry, SetCollector { sets, unseen });
    metrics
}

struct SetCollector {
    sets: Arc<Cache<SetIndex>>,
    unseen: Arc<Unseen>,
}

impl fmt::Debug for SetCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetCollector").finish_non_exhaustive()
    }
}

/// One number of a set.
type Number = fn(&MachineSet) -> i32;

const NUMBERS: [(&str, &str, Number); 6] = [
    ("mcm_machine_set_info_spec_replicas", "Machines that a set wants", |set| set.spec.replicas()),
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
        total(&mut encoder, "mcm_machine_set_items_total", "MachineSets served", sets.len())?;
        let help = "Writes for sets, deployments and pools that the caches of this process do not show yet";
        total(&mut encoder, "ostler_unseen_writes", help, self.unseen.count())?;
        let infos = sets.iter().map(|set| what_it_is(set));
        gauges(&mut encoder, "mcm_machine_set_info", "What a set is", infos)?;
        for (name, help, number) in NUMBERS {
            let series = sets.iter().map(|set| (name_of(set.as_ref()), number(set).into()));
            gauges(&mut encoder, name, help, series)?;
        }
        gauges(
            &mut encoder,
            "mcm_machine_set_status_condition",
            "A condition of a set: 1 True, 0 False, 2 Unknown",
            sets.iter().flat_map(|set| conditions(set)),
        )?;
        gauges(
            &mut encoder,
            "mcm_machine_set_failed_machines",
            "A machine of a set whose last operation failed",
            sets.iter().flat_map(|set| failures(set)),
        )
    }
}

fn what_it_is(set: &MachineSet) -> Series {
    let class = set.spec.machine_class.clone().unwrap_or_default();
    info(
        set,
        [
            ("spec_machine_class_api_group", class.api_group.unwrap_or_default()),
            ("spec_machine_class_kind", class.kind),
            ("spec_machine_class_name", class.name),
        ],
    )
}

fn conditions(set: &MachineSet) -> impl Iterator<Item = Series> {
    let all = set.status.iter().flat_map(|status| &status.conditions);
    all.map(|it| condition(set, it.type_.to_string(), it.status.as_str()))
}

fn failures(set: &MachineSet) -> impl Iterator<Item = Series> {
    let all = set.status.iter().flat_map(|status| status.failed_machines.iter().flatten());
    all.map(|machine| failed(set, machine))
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
        let leads = Leads::default();
        let _metrics = register_sets(&mut registry, &stores, &leads);
        let _leading = leads.begin();
        let set: MachineSet = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s", "namespace": "default" },
            "spec": { "replicas": 3 },
            "status": {
                "replicas": 2, "readyReplicas": 1,
                "machineSetCondition": [{ "type": "Frozen", "status": "True" }],
                "failedMachines": [{
                    "name": "m", "providerID": "fake:///m", "ownerRef": "s",
                    "lastOperation": { "state": "Failed", "type": "Create" }
                }]
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
            format!(
                "mcm_machine_set_failed_machines{name},failed_machine_name=\"m\",\
                 failed_machine_provider_id=\"fake:///m\",failed_machine_owner_ref=\"s\",\
                 failed_machine_last_operation_state=\"Failed\",\
                 failed_machine_last_operation_machine_operation_type=\"Create\"}} 1"
            ),
            "mcm_machine_stale_machines_total 0".to_owned(),
        ] {
            assert!(text.contains(&series), "{series} is not in {text}");
        }
        stores.sets.apply(Event::Delete(set));
        assert!(!scrape().contains(name));
    }
}
