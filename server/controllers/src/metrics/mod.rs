//! Metrics of the controllers. Series of machines are computed at each scrape, so a deleted machine leaves none
//! behind.

mod leads;
mod series;
mod sets;
mod steps;

pub(crate) use ostler_runtime::kind::ReconcileMetrics;

pub(crate) use leads::{Leads, Leases};
pub(crate) use series::{Series, condition, failed, gauges, info, name_of, number, total};
pub(crate) use sets::{SetMetrics, register_sets};
pub(crate) use steps::{Shape, StepMetrics};

use ostler_lifecycle::operation::OperationView;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    operation: &'static str,
    code: &'static str,
}

/// Counts the answers of drivers.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerMetrics(Family<AnswerLabel, Counter>);

impl AnswerMetrics {
    /// Registers the counter.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Recorded driver answers by verb and code";
        registry.register("ostler_driver_answers", help, metrics.0.clone());
        metrics
    }

    /// Counts the recorded answer to an operation.
    pub(crate) fn recorded(&self, operation: &OperationView) {
        let OperationView::Finished(finished) = operation else { return };
        let code = finished.outcome.as_ref().map_or_else(|failure| failure.code.name(), |_| "OK");
        let label = AnswerLabel { operation: finished.kind.name(), code };
        self.0.get_or_create(&label).inc();
    }
}
