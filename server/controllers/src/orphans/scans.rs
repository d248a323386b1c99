//! Who wants a look at the instances of a provider.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::queue::{Priority, Queue};

/// Asks for looks. Cheap to clone; every clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct OrphanScans {
    pub(crate) queue: Arc<Queue<String>>,
    /// Providers that somebody has a reason to look at before the period is over; bounded by the
    /// providers there are.
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl OrphanScans {
    pub(crate) fn new(queue: Arc<Queue<String>>) -> Self {
        Self { queue, asked: Arc::default() }
    }

    /// This provider is there: it is looked at when it is time.
    pub(crate) fn note(&self, provider: &str) {
        self.queue.add(provider.to_owned(), Priority::Background);
    }

    /// There is a reason to look soon.
    pub(crate) fn ask(&self, provider: &str) {
        if self.asked.lock().insert(provider.to_owned()) {
            self.note(provider);
        }
    }

    pub(crate) fn is_asked_for(&self, provider: &str) -> bool {
        self.asked.lock().contains(provider)
    }

    /// A look begins: what was asked for before is answered by it.
    pub(crate) fn begun(&self, provider: &str) {
        self.asked.lock().remove(provider);
    }
}
