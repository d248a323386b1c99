//! Metrics of a queue, under the names that dashboards of machine-controller-manager use.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    name: &'static str,
}

/// The metric families of all queues of a process; one per registry.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    depth: Family<QueueLabel, Gauge>,
    adds: Family<QueueLabel, Counter>,
    retries: Family<QueueLabel, Counter>,
    waited: Family<QueueLabel, Histogram, fn() -> Histogram>,
    worked: Family<QueueLabel, Histogram, fn() -> Histogram>,
}

fn seconds_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
}

impl QueueMetrics {
    /// Registers the families.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(seconds_histogram),
            worked: Family::new_with_constructor(seconds_histogram),
        };
        registry.register(
            "mcm_workqueue_depth",
            "Keys waiting for a worker",
            metrics.depth.clone(),
        );
        registry.register("mcm_workqueue_adds", "Keys put into the queue", metrics.adds.clone());
        registry.register(
            "mcm_workqueue_retries",
            "Keys put back after a failure",
            metrics.retries.clone(),
        );
        registry.register(
            "mcm_workqueue_queue_duration_seconds",
            "Time a key waits for a worker",
            metrics.waited.clone(),
        );
        registry.register(
            "mcm_workqueue_work_duration_seconds",
            "Time a worker spends on a key",
            metrics.worked.clone(),
        );
        metrics
    }

    pub(super) fn of(&self, name: &'static str) -> NamedMetrics {
        let label = QueueLabel { name };
        NamedMetrics {
            depth: self.depth.get_or_create(&label).clone(),
            adds: self.adds.get_or_create(&label).clone(),
            retries: self.retries.get_or_create(&label).clone(),
            waited: self.waited.get_or_create(&label).clone(),
            worked: self.worked.get_or_create(&label).clone(),
        }
    }
}

/// The series of a queue.
#[derive(Debug, Clone)]
pub(super) struct NamedMetrics {
    pub(super) depth: Gauge,
    pub(super) adds: Counter<u64, AtomicU64>,
    pub(super) retries: Counter<u64, AtomicU64>,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}
