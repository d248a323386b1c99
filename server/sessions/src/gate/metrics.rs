//! The counters of a gate.

use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{Gate, Inner, Refusal};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: &'static str,
}

/// The counters of a gate.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    refused: Family<OfReason, Counter>,
}

impl Metrics {
    pub(super) fn refused(&self, why: Refusal) {
        let reason = match why {
            Refusal::Full => "Full",
            Refusal::Crowded => "Crowded",
            Refusal::Silent => "Silent",
            Refusal::Unauthenticated => "Unauthenticated",
            Refusal::TooMany => "TooManyOfPrincipal",
            Refusal::Calls => "TooManyCalls",
        };
        self.refused.get_or_create(&OfReason { reason }).inc();
    }
}

pub(super) fn register(gate: &Arc<Inner>, registry: &mut Registry) {
    registry.register(
        "connections_refused",
        "Connections and calls that were refused or ended, by reason",
        gate.metrics.refused.clone(),
    );
    registry.register_collector(Box::new(Now(Arc::downgrade(gate))));
}

/// The connections at the time of a scrape.
#[derive(Debug)]
struct Now(Weak<Inner>);

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(gate) = self.0.upgrade().map(Gate) else { return Ok(()) };
        let (unknown, known) = {
            let table = gate.0.table.lock();
            (table.unknown.len(), table.known.len())
        };
        let gauge = ConstGauge::new(0_i64);
        let help = "Open connections, by whether one of their calls was authenticated";
        let mut family =
            encoder.encode_descriptor("connections", help, None, gauge.metric_type())?;
        for (state, count) in [("unknown", unknown), ("known", known)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(family.encode_family(&[("state", state)])?)?;
        }
        Ok(())
    }
}
