//! What the controllers count. Series of machines are made when they are asked for, so a machine
//! that is gone leaves none behind.

mod machines;
mod steps;

pub(crate) use machines::register_machines;
pub(crate) use steps::{Shape, StepMetrics};

use ostler_lifecycle::operation::OperationView;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::queue::Outcome;

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
