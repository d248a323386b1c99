//! Requests for orphan scans of a provider.

use ostler_api::ProviderName;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::queue::{Priority, Queue};

/// Accepts requests for scans. Cheap to clone; every clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct OrphanScans {
    pub(crate) queue: Arc<Queue<ProviderName>>,
    /// Providers that have to be scanned before the period is over; bounded by the
    /// providers that classes name.
    asked: Arc<Mutex<BTreeSet<ProviderName>>>,
}

impl OrphanScans {
    pub(crate) fn new(queue: Arc<Queue<ProviderName>>) -> Self {
        Self { queue, asked: Arc::default() }
    }

    /// The provider exists, and is scanned when a scan is due.
    pub(crate) fn note(&self, provider: &ProviderName) {
        self.queue.add(provider.clone(), Priority::Background);
    }

    /// Requests a scan soon.
    pub(crate) fn ask(&self, provider: &ProviderName) {
        if self.asked.lock().insert(provider.clone()) {
            self.note(provider);
        }
    }

    pub(crate) fn is_asked_for(&self, provider: &ProviderName) -> bool {
        self.asked.lock().contains(provider)
    }

    /// A scan begins, which answers all earlier requests, or no class names the provider any more.
    pub(crate) fn begun(&self, provider: &ProviderName) {
        self.asked.lock().remove(provider);
    }
}
