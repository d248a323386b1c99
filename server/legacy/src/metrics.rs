//! The counters of legacy drivers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

/// The counters; clones are the same. Providers come from the configuration, so there are few.
#[derive(Debug, Clone, Default)]
pub struct LegacyMetrics {
    sessions: Family<OfProvider, Gauge>,
    dropped: Family<OfProvider, Counter>,
    refused: Counter,
}

impl LegacyMetrics {
    /// Registers everything.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("ostler_driver");
        registry.register(
            "legacy_sessions",
            "Live sessions of drivers of the first proposal; none before its support ends",
            self.sessions.clone(),
        );
        registry.register(
            "legacy_dropped_answers",
            "Answers of such drivers that came late or were not asked for",
            self.dropped.clone(),
        );
        registry.register(
            "legacy_refused_reads",
            "Classes and secrets that such drivers asked for and may not have",
            self.refused.clone(),
        );
    }

    /// Counts a session for as long as the answer lives.
    pub(crate) fn session(&self, provider: &str) -> Counted {
        let gauge = self.sessions.get_or_create_owned(&of(provider));
        gauge.inc();
        Counted(gauge)
    }

    /// An answer was dropped.
    pub(crate) fn dropped(&self, provider: &str) {
        self.dropped.get_or_create(&of(provider)).inc();
    }

    /// A class or a secret was refused.
    pub(crate) fn refused(&self) {
        self.refused.inc();
    }
}

fn of(provider: &str) -> OfProvider {
    OfProvider { provider: provider.to_owned() }
}

/// One live session.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
