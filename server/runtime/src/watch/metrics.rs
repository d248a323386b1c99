//! Metrics of the watches.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// The metric families of all watches; one per registry.
#[derive(Debug, Clone)]
pub struct WatchMetrics {
    events: Family<KindLabel, Counter>,
    errors: Family<KindLabel, Counter>,
    relists: Family<KindLabel, Counter>,
    unreadable: Family<KindLabel, Counter>,
    last_event: Family<KindLabel, Gauge>,
    objects: Family<KindLabel, Gauge>,
}

impl WatchMetrics {
    /// Registers the families.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            events: Family::default(),
            errors: Family::default(),
            relists: Family::default(),
            unreadable: Family::default(),
            last_event: Family::default(),
            objects: Family::default(),
        };
        registry.register("ostler_watch_events", "Events seen", metrics.events.clone());
        registry.register("ostler_watch_errors", "Failed requests", metrics.errors.clone());
        registry.register("ostler_watch_relists", "Full lists read", metrics.relists.clone());
        registry.register(
            "ostler_watch_unreadable",
            "Objects that could not be read and were skipped, each once for each revision",
            metrics.unreadable.clone(),
        );
        registry.register(
            "ostler_watch_last_event_timestamp_seconds",
            "Unix time of the last event; its age reveals a watch that stopped silently",
            metrics.last_event.clone(),
        );
        registry.register("ostler_watch_objects", "Cached objects", metrics.objects.clone());
        metrics
    }

    /// The series of a kind.
    pub fn of(&self, kind: &'static str) -> KindMetrics {
        let label = KindLabel { kind };
        KindMetrics {
            events: self.events.get_or_create(&label).clone(),
            errors: self.errors.get_or_create(&label).clone(),
            relists: self.relists.get_or_create(&label).clone(),
            unreadable: self.unreadable.get_or_create(&label).clone(),
            last_event: self.last_event.get_or_create(&label).clone(),
            objects: self.objects.get_or_create(&label).clone(),
        }
    }
}

/// The series of a watch.
#[derive(Debug, Clone)]
pub struct KindMetrics {
    /// Events seen.
    pub events: Counter<u64, AtomicU64>,
    /// Failed requests.
    pub errors: Counter<u64, AtomicU64>,
    /// Full lists read.
    pub relists: Counter<u64, AtomicU64>,
    /// Objects that could not be read.
    pub unreadable: Counter<u64, AtomicU64>,
    /// When the last event came, in seconds of Unix time.
    pub last_event: Gauge,
    /// Cached objects.
    pub objects: Gauge,
}
