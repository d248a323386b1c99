//! The operations that ended lately.

use std::hash::BuildHasher as _;

use super::map::{Quick, Set};

/// A few minutes of a busy core; an operation that ended earlier is not known, and is not wanted either.
const ENDED: usize = 8192;

/// Operations that ended lately, so that a driver still holding one is told to drop it: at least [`ENDED`] of them, and
/// less than twice as many. Only hashes of ids are kept, with keys of this process: ids are read and freed in every
/// call of a driver, and ids of minutes ago are in no CPU cache. For the same reason no id is taken out alone.
#[derive(Debug, Default)]
pub(super) struct Ended {
    latest: Set<u64>,
    earlier: Set<u64>,
    hasher: Quick,
}

impl Ended {
    pub(super) fn put(&mut self, id: &str) {
        self.latest.insert(self.hasher.hash_one(id));
        if self.latest.len() >= ENDED {
            std::mem::swap(&mut self.latest, &mut self.earlier);
            self.latest.clear();
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        let hash = self.hasher.hash_one(id);
        self.latest.contains(&hash) || self.earlier.contains(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousands_of_operations_that_ended_are_known() {
        let mut ended = Ended::default();
        for number in 0..=3 * ENDED {
            ended.put(&number.to_string());
            ended.put(&number.to_string());
            let known = ended.latest.len() + ended.earlier.len();
            assert!(known > number.min(ENDED - 1) && known < 2 * ENDED, "{known} of {number}");
        }
        let known = |number: usize| ended.contains(&number.to_string());
        assert_eq!([known(ENDED), known(2 * ENDED), known(3 * ENDED)], [false, true, true]);
    }
}
