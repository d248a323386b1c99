//! Maps that are searched several times in every call of a driver.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use foldhash::fast::{FixedState, FoldHasher};

/// Hashes in a few nanoseconds. It does not stand up to someone who sees hashes and chooses keys, and need not: keys are ids
/// and names that the core, the API or an administrator gave.
#[derive(Debug, Clone)]
pub(crate) struct Quick(FixedState);

impl Default for Quick {
    /// With a seed of its own, from the source of the standard library's seeds: a simulated life is the same each time.
    fn default() -> Self {
        Self(FixedState::with_seed(RandomState::new().hash_one(())))
    }
}

impl BuildHasher for Quick {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

pub(crate) type Map<K, V> = HashMap<K, V, Quick>;
pub(crate) type Set<K> = HashSet<K, Quick>;
