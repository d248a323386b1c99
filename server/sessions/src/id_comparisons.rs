//! The drivers' comparisons of Nodes' provider ids with instances', by provider.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use ostler_api::{ProviderIdComparison, ProviderName};
use parking_lot::Mutex;

/// More than a core has providers. A forgotten provider has no known comparison until its driver comes again.
const FORMER: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The last answers of active drivers. Cheap to clone; every clone is the same.
#[derive(Debug, Clone, Default)]
pub struct IdComparisons(Arc<Mutex<Said>>);

#[derive(Debug)]
struct Said {
    connected: BTreeMap<ProviderName, ProviderIdComparison>,
    former: LruCache<ProviderName, ProviderIdComparison>,
}

impl Default for Said {
    fn default() -> Self {
        Self { connected: BTreeMap::new(), former: LruCache::new(FORMER) }
    }
}

impl IdComparisons {
    /// The answer of a provider's driver; `None`: none was active since this process started.
    pub fn of(&self, provider: &ProviderName) -> Option<ProviderIdComparison> {
        let said = self.0.lock();
        said.connected.get(provider).or_else(|| said.former.peek(provider)).copied()
    }

    /// The active driver of a provider says how.
    pub fn set(&self, provider: &ProviderName, by: ProviderIdComparison) {
        let mut said = self.0.lock();
        said.former.pop(provider);
        said.connected.insert(provider.clone(), by);
    }

    /// The provider has no sessions any more. The last answer of its driver still counts.
    pub(crate) fn left(&self, provider: &ProviderName) {
        let mut said = self.0.lock();
        if let Some((provider, by)) = said.connected.remove_entry(provider) {
            said.former.put(provider, by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_said_counts_also_when_it_left_and_of_strangers_few_are_kept() {
        let comparisons = IdComparisons::default();
        let (own, by) = ("a".into(), ProviderIdComparison::CaseInsensitive);
        assert_eq!(comparisons.of(&own), None);
        comparisons.set(&own, by);
        comparisons.left(&own);
        assert_eq!(comparisons.of(&own), Some(by));
        comparisons.set(&own, by);
        for number in 0..5000 {
            let stranger = format!("p-{number}").into();
            comparisons.set(&stranger, by);
            comparisons.left(&stranger);
        }
        assert_eq!(comparisons.of(&own), Some(by));
        assert_eq!(comparisons.of(&"p-0".into()), None);
        assert_eq!(comparisons.0.lock().former.len(), FORMER.get());
    }
}
