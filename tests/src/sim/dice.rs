//! Chance, from a seed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A stream of numbers that depends on its seed alone. Clones draw from the same stream.
#[derive(Clone, Debug)]
pub struct Dice {
    state: Arc<Mutex<u64>>,
}

impl Dice {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(seed ^ 0x5851_f42d_4c95_7f2d)) }
    }

    /// The next number. SplitMix64.
    pub fn next(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` on, below `high`.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    /// True so often in a hundred.
    pub fn percent(&self, chance: u64) -> bool {
        self.between(0, 100) < chance
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<T: Clone>(&self, of: &[T]) -> T {
        let index = usize::try_from(self.between(0, of.len() as u64)).unwrap_or_default();
        of[index].clone()
    }

    /// Milliseconds from `low` on, below `high`.
    pub fn millis(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }
}
