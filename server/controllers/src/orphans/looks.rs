//! Who wants a look at the instances of a provider.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::queue::{Lane, Queue};

/// Asks for looks. Cheap to clone; every clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Looks {
    pub(crate) queue: Arc<Queue<String>>,
    /// Providers that somebody has a reason to look at before the period is over; bounded by the
    /// providers there are.
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Looks {
    pub(crate) fn new(queue: Arc<Queue<String>>) -> Self {
        Self { queue, asked: Arc::default() }
    }

    fn asked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This provider is there: it is looked at when it is time.
    pub(crate) fn note(&self, provider: &str) {
        self.queue.add(provider.to_owned(), Lane::Background);
    }

    /// There is a reason to look soon.
    pub(crate) fn ask(&self, provider: &str) {
        if self.asked().insert(provider.to_owned()) {
            self.note(provider);
        }
    }

    pub(crate) fn is_asked_for(&self, provider: &str) -> bool {
        self.asked().contains(provider)
    }

    /// A look begins: what was asked for before is answered by it.
    pub(crate) fn begun(&self, provider: &str) {
        self.asked().remove(provider);
    }
}
