//! What the controllers count. Series of machines are made when they are asked for, so a machine
//! that is gone leaves none behind.

use std::fmt;
use std::sync::Arc;

use ostler_api::Machine;
use ostler_api::machine::MachinePhase;
use ostler_lifecycle::operation::OperationView;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::memory::Memory;
use crate::queue::Outcome;
use crate::stores::Stores;
use crate::watch::Mirror;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    operation: &'static str,
    code: &'static str,
}

/// How reconciles of machines end, and what drivers answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReconcileMetrics {
    reconciles: Family<ResultLabel, Counter>,
    answers: Family<AnswerLabel, Counter>,
}

impl ReconcileMetrics {
    /// Registers the counters.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ostler_machine_reconciles",
            "Reconciles of machines, by how they ended",
            metrics.reconciles.clone(),
        );
        registry.register(
            "ostler_driver_answers",
            "Answers of drivers that were recorded, by verb and code",
            metrics.answers.clone(),
        );
        metrics
    }

    /// A reconcile ended like this.
    pub(crate) fn passed(&self, outcome: Outcome) -> Outcome {
        let result = match outcome {
            Outcome::Done => "done",
            Outcome::Again(_) => "waits",
            Outcome::Failed => "failed",
        };
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
        outcome
    }

    /// A reconcile broke off.
    pub(crate) fn broken(&self, result: &'static str) -> Outcome {
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
        Outcome::Failed
    }

    /// The answer to an operation was recorded.
    pub(crate) fn answered(&self, operation: &OperationView) {
        let OperationView::Finished(finished) = operation else { return };
        let code = finished.outcome.as_ref().map_or_else(|failure| failure.code.name(), |_| "OK");
        let label = AnswerLabel { operation: finished.kind.name(), code };
        self.answers.get_or_create(&label).inc();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MachineLabel {
    name: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: String,
}

/// Machines, as they are when somebody asks.
struct MachineCollector {
    machines: Arc<Mirror<Machine>>,
}

impl fmt::Debug for MachineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineCollector").finish_non_exhaustive()
    }
}

/// Registers what is told of machines.
pub(crate) fn register_machines(registry: &mut Registry, stores: &Stores, memory: &Arc<Memory>) {
    let machines = Arc::clone(&stores.machines);
    registry.register_collector(Box::new(MachineCollector { machines }));
    registry.register_collector(Box::new(UpdateCollector { memory: Arc::clone(memory) }));
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpdateLabel {
    state: &'static str,
}

/// Hot updates, read when somebody scrapes.
#[derive(Debug)]
struct UpdateCollector {
    memory: Arc<Memory>,
}

impl Collector for UpdateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = encoder.encode_descriptor(
            "ostler_hot_updates",
            "Machines that are hot updated, and those that wait for their turn",
            None,
            MetricType::Gauge,
        )?;
        let (running, waiting) = self.memory.rooms.count();
        for (state, count) in [("running", running), ("waiting", waiting)] {
            let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            count.encode(to.encode_family(&UpdateLabel { state })?)?;
        }
        Ok(())
    }
}

impl Collector for MachineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let machines = self.machines.all();
        let total = ConstGauge::new(i64::try_from(machines.len()).unwrap_or(i64::MAX));
        let to = encoder.encode_descriptor(
            "mcm_machine_items_total",
            "Machines in the namespace",
            None,
            MetricType::Gauge,
        )?;
        total.encode(to)?;
        let mut to = encoder.encode_descriptor(
            "mcm_machine_current_status_phase",
            "Phase of a machine as a number",
            None,
            MetricType::Gauge,
        )?;
        for machine in &machines {
            let label = MachineLabel {
                name: machine.name().to_owned(),
                namespace: machine.metadata.namespace.clone().unwrap_or_default(),
            };
            ConstGauge::new(phase_number(&machine.phase())).encode(to.encode_family(&label)?)?;
        }
        let mut to = encoder.encode_descriptor(
            "ostler_machines",
            "Machines by phase",
            None,
            MetricType::Gauge,
        )?;
        for word in MachinePhase::WORDS {
            let count = machines.iter().filter(|one| one.phase().as_str() == *word).count();
            let phase = if word.is_empty() { "New" } else { word };
            let label = PhaseLabel { phase: phase.to_owned() };
            let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            count.encode(to.encode_family(&label)?)?;
        }
        Ok(())
    }
}

/// The numbers that dashboards know.
fn phase_number(phase: &MachinePhase) -> i64 {
    match phase {
        MachinePhase::Terminating => -4,
        MachinePhase::Failed => -3,
        MachinePhase::CrashLoopBackOff => -2,
        MachinePhase::Unknown => -1,
        MachinePhase::Running => 1,
        MachinePhase::New
        | MachinePhase::Pending
        | MachinePhase::Available
        | MachinePhase::InPlaceUpdating
        | MachinePhase::InPlaceUpdateSuccessful
        | MachinePhase::InPlaceUpdateFailed
        | MachinePhase::Other(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_that_is_gone_leaves_no_series_behind() {
        let (mut registry, stores) = (Registry::default(), Stores::default());
        register_machines(&mut registry, &stores, &Arc::default());
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" }, "spec": {},
            "status": { "currentStatus": { "phase": "Running" } }
        }))
        .unwrap();
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        stores.machines.apply(Event::Apply(machine.clone()));
        let text = scrape();
        assert!(text.contains("mcm_machine_items_total 1"), "{text}");
        let series = r#"mcm_machine_current_status_phase{name="m",namespace="default"} 1"#;
        assert!(text.contains(series), "{text}");
        assert!(text.contains(r#"ostler_machines{phase="Running"} 1"#), "{text}");
        stores.machines.apply(Event::Delete(machine));
        assert!(!scrape().contains(r#"name="m""#));
    }
}
