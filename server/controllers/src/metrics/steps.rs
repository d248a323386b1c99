//! How long machines take for each step.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use jiff::Timestamp;
use lru::LruCache;
use ostler_api::Machine;
use ostler_api::machine::{FailureReason, MachineStatus, MachineStep};
use ostler_api::names::label;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds, from an immediate step to a drain that takes its full two hours.
const SECONDS: [f64; 12] =
    [0.1, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0, 7200.0];
/// Series of last durations that are kept: MachineDeployments come and go, and a process runs for long.
const MOST_SERIES: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

/// The labels that describe a machine's shape.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// `nodeTemplate.instanceType` of the class.
    pub(crate) instance_type: String,
}

/// Measures steps.
#[derive(Debug, Clone)]
pub(crate) struct StepMetrics {
    seconds: Family<StepLabel, Histogram, fn() -> Histogram>,
    last: Last,
}

impl StepMetrics {
    /// Registers the metrics.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let metrics =
            Self { seconds: Family::new_with_constructor(seconds), last: Last::default() };
        registry.register(
            "ostler_machine_step_seconds",
            "Time that machines spent in each step",
            metrics.seconds.clone(),
        );
        registry.register_collector(Box::new(metrics.last.clone()));
        metrics
    }

    /// A pass wrote `status` for `machine`; `gone`: it also removed the finalizer.
    pub(crate) fn passed(
        &self,
        machine: &Machine,
        status: &MachineStatus,
        gone: bool,
        shape: &Shape,
        now: Timestamp,
    ) {
        let before = machine.status.as_ref();
        let step = before.and_then(|before| before.step.as_ref());
        let since = before.and_then(|before| before.step_since.as_ref());
        if let (Some(step), Some(since)) = (step, since)
            && (gone || status.step.as_ref() != Some(step))
        {
            let took = now.duration_since(since.0).as_secs_f64().max(0.0);
            let label = StepLabel { step: step_name(step) };
            self.seconds.get_or_create(&label).observe(took);
            if let Some(gauge) = gauge_of(step) {
                self.last.set(gauge, machine, shape, since.0, now);
            }
        }
        if let (true, Some(deleted)) = (gone, &machine.metadata.deletion_timestamp) {
            self.last.set("mcm_machine_delete_duration_seconds", machine, shape, deleted.0, now);
        }
        let failed = before.and_then(|before| before.failure_reason.as_ref());
        if failed.is_none() && status.failure_reason == Some(FailureReason::JoinTimeout) {
            self.last.count_failed_join(machine, shape);
        }
    }
}

fn step_name(step: &MachineStep) -> &'static str {
    MachineStep::WORDS.iter().find(|known| **known == step.as_str()).copied().unwrap_or("Other")
}

/// The metric name that dashboards know for the duration of a step.
const fn gauge_of(step: &MachineStep) -> Option<&'static str> {
    match step {
        MachineStep::CreateInstance => Some("mcm_machine_create_duration_seconds"),
        MachineStep::InitializeInstance => Some("mcm_machine_initialize_duration_seconds"),
        MachineStep::JoinNode => Some("mcm_machine_join_duration_seconds"),
        MachineStep::DrainNode => Some(DRAIN),
        MachineStep::UpdateInstance
        | MachineStep::FindInstance
        | MachineStep::PreDrainHook
        | MachineStep::CordonNode
        | MachineStep::DetachVolumes
        | MachineStep::PreTerminateHook
        | MachineStep::DeleteInstance
        | MachineStep::DeleteNode
        | MachineStep::RemoveFinalizer
        | MachineStep::UpdateNode
        | MachineStep::Other(_) => None,
    }
}

const DRAIN: &str = "mcm_machine_drain_duration_seconds";
const FAILED_JOIN: &str = "mcm_machine_num_failed_join";

/// Metric name and labels.
type Key = (&'static str, Vec<(&'static str, String)>);

/// The last duration of each kind, as upstream's dashboards expect it: whole seconds, for machines that have a label
/// `name`.
#[derive(Clone)]
struct Last {
    values: Arc<Mutex<LruCache<Key, i64>>>,
}

impl Default for Last {
    fn default() -> Self {
        Self { values: Arc::new(Mutex::new(LruCache::new(MOST_SERIES))) }
    }
}

impl fmt::Debug for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Last").finish_non_exhaustive()
    }
}

impl Last {
    fn set(
        &self,
        name: &'static str,
        machine: &Machine,
        shape: &Shape,
        since: Timestamp,
        now: Timestamp,
    ) {
        let took = now.duration_since(since).as_secs().max(0);
        self.change(name, machine, shape, |value| *value = took);
    }

    /// A counter whose name lacks the suffix of a counter: it is exported as a gauge, so that the name stays.
    fn count_failed_join(&self, machine: &Machine, shape: &Shape) {
        self.change(FAILED_JOIN, machine, shape, |value| *value += 1);
    }

    fn change(
        &self,
        name: &'static str,
        machine: &Machine,
        shape: &Shape,
        change: impl FnOnce(&mut i64),
    ) {
        let Some(labels) = labels(name, machine, shape) else { return };
        change(self.values.lock().get_or_insert_mut((name, labels), || 0));
    }
}

fn labels(name: &str, machine: &Machine, shape: &Shape) -> Option<Vec<(&'static str, String)>> {
    let deployment = machine.label(label::DEPLOYMENT_NAME)?.to_owned();
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    let mut labels = vec![("namespace", namespace), ("machine_deployment", deployment)];
    if name != DRAIN {
        let template = machine.spec.node_template.as_ref();
        let meta = template.and_then(|template| template.metadata.as_ref());
        let zone = meta.and_then(|meta| meta.labels.as_ref()?.get(label::ZONE).cloned());
        labels.push(("instance_type", shape.instance_type.clone()));
        labels.push(("zone", zone.unwrap_or_default()));
    }
    Some(labels)
}

impl Collector for Last {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let values = self.values.lock().clone();
        let mut families: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (&(name, ref labels), &value) in &values {
            families.entry(name).or_default().push((labels, value));
        }
        for (name, series) in families {
            let help = if name == FAILED_JOIN {
                "Machines whose Node did not join in time"
            } else {
                "Last duration"
            };
            let mut to = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                ConstGauge::new(value).encode(to.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};

    use super::*;

    fn machine(deployment: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "a", "labels": { "name": deployment } },
            "spec": { "nodeTemplate": { "metadata": { "labels": { label::ZONE: "z" } } } },
            "status": status
        }))
        .unwrap()
    }

    fn scrape(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn the_end_of_a_step_is_measured_under_both_names() {
        let mut registry = Registry::default();
        let metrics = StepMetrics::register(&mut registry);
        let joining = json!({ "step": "JoinNode", "stepSince": "2026-01-01T00:00:00Z" });
        let shape = Shape { instance_type: "large".to_owned() };
        let now = "2026-01-01T00:01:30Z".parse().unwrap();
        let machine = machine("d", &joining);
        metrics.passed(&machine, machine.status.as_ref().unwrap(), false, &shape, now);
        assert!(!scrape(&registry).contains("JoinNode"), "the step continues");
        metrics.passed(&machine, &MachineStatus::default(), false, &shape, now);
        let text = scrape(&registry);
        assert!(text.contains(r#"ostler_machine_step_seconds_sum{step="JoinNode"} 90"#), "{text}");
        let series = r#"mcm_machine_join_duration_seconds{namespace="a",machine_deployment="d",instance_type="large",zone="z"} 90"#;
        assert!(text.contains(series), "{text}");
    }

    #[test]
    fn deployments_that_come_and_go_leave_a_bounded_number_of_series() {
        let mut registry = Registry::default();
        let metrics = StepMetrics::register(&mut registry);
        let draining = json!({ "step": "DrainNode", "stepSince": "2026-01-01T00:00:00Z" });
        let now = "2026-01-01T00:01:30Z".parse().unwrap();
        for number in 0..MOST_SERIES.get() + 100 {
            let machine = machine(&format!("d-{number}"), &draining);
            metrics.passed(&machine, &MachineStatus::default(), false, &Shape::default(), now);
        }
        let text = scrape(&registry);
        assert_eq!(text.matches("mcm_machine_drain_duration_seconds{").count(), MOST_SERIES.get());
    }
}
