//! Metrics of MachineDeployments, computed from the cache at each scrape. Their names are upstream's.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::MachineDeployment;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::stores::Stores;
use crate::watch::Cache;

/// Registers the metrics of deployments.
pub(crate) fn register_deployments(registry: &mut Registry, stores: &Stores) {
    let deployments = Arc::clone(&stores.deployments);
    registry.register_collector(Box::new(DeploymentCollector { deployments }));
}

#[derive(Debug)]
struct DeploymentCollector {
    deployments: Arc<Cache<MachineDeployment>>,
}

/// The labels of a series, and its value.
type Series = (Vec<(&'static str, String)>, i64);
/// Reads one number of a deployment; `None`: there is no series.
type Number = fn(&MachineDeployment) -> Option<i64>;

/// Gauges of one number for each deployment, without the common beginning of their names.
const NUMBERS: [(&str, &str, Number); 13] = [
    ("info_spec_paused", "Whether it is paused", |it| {
        Some(i64::from(it.spec.paused == Some(true)))
    }),
    ("info_spec_replicas", "Machines wanted", |it| Some(it.spec.replicas.into())),
    ("info_spec_min_ready_seconds", "spec.minReadySeconds", |it| {
        Some(it.spec.min_ready_seconds.unwrap_or_default().into())
    }),
    ("info_spec_rolling_update_max_surge", "Machines that a rollout may add", |it| {
        plain(it.spec.strategy.rolling_update.as_ref()?.max_surge.as_ref()?)
    }),
    ("info_spec_rolling_update_max_unavailable", "Machines that a rollout may lack", |it| {
        plain(it.spec.strategy.rolling_update.as_ref()?.max_unavailable.as_ref()?)
    }),
    ("info_spec_revision_history_limit", "Old sets that are kept", |it| {
        it.spec.revision_history_limit.map(i64::from)
    }),
    ("info_spec_progress_deadline_seconds", "Seconds that a rollout may stand still", |it| {
        it.spec.progress_deadline_seconds.map(i64::from)
    }),
    ("info_spec_rollback_to_revision", "The revision to go back to", |it| {
        it.spec.rollback_to.as_ref().map(|to| to.revision)
    }),
    ("status_available_replicas", "Machines available", |it| {
        Some(it.status.as_ref()?.available_replicas.into())
    }),
    ("status_unavailable_replicas", "Machines not available", |it| {
        Some(it.status.as_ref()?.unavailable_replicas.into())
    }),
    ("status_ready_replicas", "Machines running", |it| {
        Some(it.status.as_ref()?.ready_replicas.into())
    }),
    ("status_updated_replicas", "Machines of the current template", |it| {
        Some(it.status.as_ref()?.updated_replicas.into())
    }),
    ("status_replicas", "Machines", |it| Some(it.status.as_ref()?.replicas.into())),
];

impl Collector for DeploymentCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.deployments.all();
        let name = "mcm_machine_deployment_items_total";
        let to = encoder.encode_descriptor(name, "Deployments served", None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(all.len()).unwrap_or(i64::MAX)).encode(to)?;
        let mut gauges = |name: &str, help: &str, series: Vec<Series>| -> fmt::Result {
            let name = format!("mcm_machine_deployment_{name}");
            let mut to = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                ConstGauge::new(value).encode(to.encode_family(&labels)?)?;
            }
            Ok(())
        };
        for (name, help, number) in NUMBERS {
            let series = |one: &Arc<MachineDeployment>| Some((name_of(one), number(one)?));
            gauges(name, help, all.iter().filter_map(series).collect())?;
        }
        let collisions = |one: &Arc<MachineDeployment>| {
            let count = one.status.as_ref()?.collision_count.unwrap_or_default();
            Some((name_of(one), count.into()))
        };
        let help = "How often the name of a set was taken";
        gauges("status_collision_count", help, all.iter().filter_map(collisions).collect())?;
        gauges("info", "What it is", all.iter().map(|one| info(one)).collect())?;
        let help = "A condition: 1 True, 0 False, 2 Unknown";
        gauges("status_condition", help, all.iter().flat_map(|one| conditions(one)).collect())?;
        let help = "Machines whose last operation failed";
        gauges("failed_machines", help, all.iter().flat_map(|one| failures(one)).collect())
    }
}

fn plain(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::Int(number) => Some(i64::from(*number)),
        IntOrString::String(text) => text.trim_end_matches('%').parse().ok(),
    }
}

fn name_of(deployment: &MachineDeployment) -> Vec<(&'static str, String)> {
    let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
    vec![("name", deployment.name().to_owned()), ("namespace", namespace)]
}

fn info(deployment: &MachineDeployment) -> Series {
    let created = deployment.metadata.creation_timestamp.as_ref();
    let created = created.map(|time| time.0.as_second()).unwrap_or_default();
    let strategy = deployment.spec.strategy.type_.as_ref();
    let mut labels = name_of(deployment);
    labels.extend([
        ("createdAt", created.to_string()),
        ("spec_strategy_type", strategy.map(ToString::to_string).unwrap_or_default()),
    ]);
    (labels, 1)
}

fn conditions(deployment: &MachineDeployment) -> Vec<Series> {
    let all = deployment.status.iter().flat_map(|status| &status.conditions);
    let one = |condition: &ostler_api::machine_deployment::MachineDeploymentCondition| {
        let mut labels = name_of(deployment);
        labels.push(("condition", condition.type_.to_string()));
        let value = match condition.status.as_str() {
            "True" => 1,
            "False" => 0,
            _ => 2,
        };
        (labels, value)
    };
    all.map(one).collect()
}

fn failures(deployment: &MachineDeployment) -> Vec<Series> {
    let all = deployment.status.iter().flat_map(|status| status.failed_machines.iter().flatten());
    let one = |machine: &ostler_api::machine_set::MachineSummary| {
        let last = machine.last_operation.as_ref();
        let state = last.and_then(|last| last.state.as_ref()).map(ToString::to_string);
        let type_ = last.and_then(|last| last.type_.as_ref()).map(ToString::to_string);
        let mut labels = name_of(deployment);
        labels.extend([
            ("failed_machine_name", machine.name.clone().unwrap_or_default()),
            ("failed_machine_provider_id", machine.provider_id.clone().unwrap_or_default()),
            ("failed_machine_owner_ref", machine.owner_ref.clone().unwrap_or_default()),
            ("failed_machine_last_operation_state", state.unwrap_or_default()),
            ("failed_machine_last_operation_machine_operation_type", type_.unwrap_or_default()),
        ]);
        (labels, 1)
    };
    all.map(one).collect()
}
