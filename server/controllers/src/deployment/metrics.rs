//! Metrics of MachineDeployments, computed from the cache at each scrape. The names are upstream's.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::MachineDeployment;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::metrics::{Leads, Series, condition, failed, gauges, info, name_of, total};
use crate::stores::{DeploymentIndex, Stores};
use crate::watch::Cache;

/// Registers the metrics of deployments.
pub(crate) fn register_deployments(registry: &mut Registry, stores: &Stores, leads: &Leads) {
    let deployments = Arc::clone(&stores.deployments);
    leads.register_collector(registry, DeploymentCollector { deployments });
}

#[derive(Debug)]
struct DeploymentCollector {
    deployments: Arc<Cache<DeploymentIndex>>,
}

/// Reads one number of a deployment; `None`: there is no series.
type Number = fn(&MachineDeployment) -> Option<i64>;

/// Gauges with a number for each deployment, without the common prefix of their names.
const NUMBERS: [(&str, &str, Number); 13] = [
    ("info_spec_paused", "Whether it is paused", |it| {
        Some(i64::from(it.spec.paused == Some(true)))
    }),
    ("info_spec_replicas", "Machines wanted", |it| Some(it.spec.replicas().into())),
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
        total(&mut encoder, name, "Deployments served", all.len())?;
        let mut gauges = |name: &str, help: &str, series: Vec<Series>| {
            gauges(&mut encoder, &format!("mcm_machine_deployment_{name}"), help, series)
        };
        for (name, help, number) in NUMBERS {
            let series = |one: &Arc<MachineDeployment>| Some((name_of(one.as_ref()), number(one)?));
            gauges(name, help, all.iter().filter_map(series).collect())?;
        }
        let collisions = |one: &Arc<MachineDeployment>| {
            let count = one.status.as_ref()?.collision_count.unwrap_or_default();
            Some((name_of(one.as_ref()), count.into()))
        };
        let help = "How often the name of a set was taken";
        gauges("status_collision_count", help, all.iter().filter_map(collisions).collect())?;
        gauges("info", "What it is", all.iter().map(|one| what_it_is(one)).collect())?;
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

fn what_it_is(deployment: &MachineDeployment) -> Series {
    let strategy = deployment.spec.strategy.type_.as_ref();
    info(
        deployment,
        [("spec_strategy_type", strategy.map(ToString::to_string).unwrap_or_default())],
    )
}

fn conditions(deployment: &MachineDeployment) -> impl Iterator<Item = Series> {
    let all = deployment.status.iter().flat_map(|status| &status.conditions);
    all.map(|it| condition(deployment, it.type_.to_string(), it.status.as_str()))
}

fn failures(deployment: &MachineDeployment) -> impl Iterator<Item = Series> {
    let all = deployment.status.iter().flat_map(|status| status.failed_machines.iter().flatten());
    all.map(|machine| failed(deployment, machine))
}
