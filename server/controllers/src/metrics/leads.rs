//! The Leases held by this process.

use std::fmt;
use std::sync::atomic::AtomicI64;

use ostler_api::names::{LEADER_LEASE, SETS_LEASE};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabel {
    lease: &'static str,
}

/// Both Leases.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The Lease of the machines.
    pub(crate) machines: Leads,
    /// The Lease of the sets and deployments.
    pub(crate) sets: Leads,
}

impl Leases {
    /// Registers the metric.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let family = Family::<LeaseLabel, Gauge<i64, AtomicI64>>::default();
        registry.register("ostler_leader", "Whether this process holds a Lease", family.clone());
        let of = |lease| Leads(family.get_or_create_owned(&LeaseLabel { lease }));
        Self { machines: of(LEADER_LEASE), sets: of(SETS_LEASE) }
    }
}

/// Whether this process holds a Lease, for the metric.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leads(Gauge<i64, AtomicI64>);

impl Leads {
    /// Registers metrics shown while this process leads: every process knows the values, and a sum over replicas would
    /// count each object several times.
    pub(crate) fn register_collector(&self, registry: &mut Registry, of_leader: impl Collector) {
        registry.register_collector(Box::new(WhileLeading { leads: self.clone(), of_leader }));
    }

    /// The process leads until the result is dropped.
    #[must_use]
    pub(crate) fn begin(&self) -> Leading {
        self.0.set(1);
        Leading(self.clone())
    }
}

/// Marks this process as the leader.
#[derive(Debug)]
pub(crate) struct Leading(Leads);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.0.set(0);
    }
}

#[derive(Debug)]
struct WhileLeading<C> {
    leads: Leads,
    of_leader: C,
}

impl<C: Collector> Collector for WhileLeading<C> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.leads.0.get() == 0 { Ok(()) } else { self.of_leader.encode(encoder) }
    }
}
