//! How many groups of one provider are read at the same time. A read may take minutes, and occupies a worker of all pools.

use std::collections::HashMap;

use ostler_api::ProviderName;
use parking_lot::Mutex;

/// At most so many.
const MOST: usize = 8;

/// The reads that run, by provider. Bounded by the workers.
#[derive(Debug, Default)]
pub(crate) struct Reads(Mutex<HashMap<ProviderName, usize>>);

/// A read that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    reads: &'a Reads,
    provider: ProviderName,
}

impl Reads {
    /// `None`: as many run as may.
    pub(super) fn begin(&self, provider: &ProviderName) -> Option<Running<'_>> {
        let mut all = self.0.lock();
        let running = all.entry(provider.clone()).or_default();
        if *running >= MOST {
            return None;
        }
        *running += 1;
        Some(Running { reads: self, provider: provider.clone() })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut all = self.reads.0.lock();
        let left = all.get(&self.provider).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            all.remove(&self.provider);
        } else {
            all.insert(self.provider.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_slow_leaves_workers_to_the_pools_of_others() {
        let (reads, slow, other) = (Reads::default(), "slow".into(), "other".into());
        let mut running: Vec<_> = (0..MOST).map(|_| reads.begin(&slow).unwrap()).collect();
        assert!(reads.begin(&slow).is_none());
        assert!(reads.begin(&other).is_some());
        running.pop();
        assert!(reads.begin(&slow).is_some());
        running.clear();
        assert!(reads.0.lock().is_empty(), "nothing is kept of a provider of which none runs");
    }
}
