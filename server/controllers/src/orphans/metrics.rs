//! Metrics of orphan collection.

use ostler_api::ProviderName;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_lifecycle::orphans::KeepReason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabel {
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClaimLabel {
    provider: String,
    claim: &'static str,
}

/// Counts the results of scans and deletions.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrphanMetrics {
    instances: Family<ClaimLabel, Gauge>,
    orphans: Family<ProviderLabel, Gauge>,
    parts: Family<ProviderLabel, Gauge>,
    several: Family<ProviderLabel, Gauge>,
    found: Family<ProviderLabel, Counter>,
    deleted: Family<ProviderLabel, Counter>,
    delete_failed: Family<ProviderLabel, Counter>,
    list_failed: Family<ProviderLabel, Counter>,
    /// Claims with a series, so that it can be set back to 0.
    shown: Arc<Mutex<BTreeMap<ProviderName, Vec<&'static str>>>>,
}

impl OrphanMetrics {
    /// Registers the counters.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ostler_listed_instances",
            "Instances that the last scan found, by who claims them",
            metrics.instances.clone(),
        );
        let gauges = [
            ("ostler_orphans", "Orphans that exist now", &metrics.orphans),
            (
                "ostler_orphan_parts",
                "Parts (disks, network cards, addresses) that are of no machine and no instance",
                &metrics.parts,
            ),
            (
                "ostler_duplicate_identities",
                "Identities with several instances at the last scan",
                &metrics.several,
            ),
        ];
        for (name, help, family) in gauges {
            registry.register(name, help, family.clone());
        }
        let counters = [
            ("ostler_orphans_found", "Orphans that were confirmed", &metrics.found),
            ("ostler_orphans_deleted", "Orphans that were deleted", &metrics.deleted),
            (
                "ostler_orphan_delete_failures",
                "Deletions of orphans that failed",
                &metrics.delete_failed,
            ),
            ("ostler_orphan_list_failures", "Lists of instances that failed", &metrics.list_failed),
        ];
        for (name, help, family) in counters {
            registry.register(name, help, family.clone());
        }
        metrics
    }

    /// Sets the results of a scan.
    pub(crate) fn seen(
        &self,
        provider: &ProviderName,
        counts: &BTreeMap<Option<KeepReason>, usize>,
        (orphans, parts): (usize, usize),
    ) {
        let claim = |keep: &Option<KeepReason>| keep.map_or("None", KeepReason::name);
        let mut shown = self.shown.lock();
        for claim in shown.remove(provider).unwrap_or_default() {
            self.instances.get_or_create(&claim_label(provider, claim)).set(0);
        }
        for (keep, count) in counts {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.instances.get_or_create(&claim_label(provider, claim(keep))).set(count);
        }
        shown.insert(provider.clone(), counts.keys().map(claim).collect());
        let orphans = i64::try_from(orphans).unwrap_or(i64::MAX);
        self.orphans.get_or_create(&label(provider)).set(orphans);
        let parts = i64::try_from(parts).unwrap_or(i64::MAX);
        self.parts.get_or_create(&label(provider)).set(parts);
    }

    /// Identities with several instances.
    pub(crate) fn several(&self, provider: &ProviderName, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.several.get_or_create(&label(provider)).set(count);
    }

    /// No class names this provider any more.
    pub(crate) fn forget(&self, provider: &ProviderName) {
        let mut shown = self.shown.lock();
        for claim in shown.remove(provider).unwrap_or_default() {
            self.instances.remove(&claim_label(provider, claim));
        }
        self.orphans.remove(&label(provider));
        self.parts.remove(&label(provider));
        self.several.remove(&label(provider));
    }

    /// An orphan was confirmed.
    pub(crate) fn found(&self, provider: &ProviderName) {
        self.found.get_or_create(&label(provider)).inc();
    }

    /// An orphan was deleted.
    pub(crate) fn deleted(&self, provider: &ProviderName) {
        self.deleted.get_or_create(&label(provider)).inc();
    }

    /// An orphan could not be deleted.
    pub(crate) fn delete_failed(&self, provider: &ProviderName) {
        self.delete_failed.get_or_create(&label(provider)).inc();
    }

    /// The instances of a class could not be listed.
    pub(crate) fn list_failed(&self, provider: &ProviderName) {
        self.list_failed.get_or_create(&label(provider)).inc();
    }
}

fn label(provider: &ProviderName) -> ProviderLabel {
    ProviderLabel { provider: provider.to_string() }
}

fn claim_label(provider: &ProviderName, claim: &'static str) -> ClaimLabel {
    ClaimLabel { provider: provider.to_string(), claim }
}
