//! Which operations ended lately.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use super::map::Set;

/// A few minutes of a busy core; an operation that ended earlier is not known, and is not wanted either.
const ENDED: usize = 8192;

/// Operations that ended lately, so that a driver that still holds one is told to drop it. Of each only the hash of its id, with
/// keys of this process: ids are read and freed in every call of a driver, and those of minutes ago are in no CPU cache.
#[derive(Debug, Default)]
pub(super) struct Ended {
    ids: Set<u64>,
    /// Oldest first.
    order: VecDeque<u64>,
    hasher: RandomState,
}

impl Ended {
    pub(super) fn put(&mut self, id: &str) {
        let hash = self.hasher.hash_one(id);
        if !self.ids.insert(hash) {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.contains(&self.hasher.hash_one(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousands_of_operations_that_ended_are_known() {
        let mut ended = Ended::default();
        for number in 0..=ENDED {
            ended.put(&number.to_string());
            ended.put(&number.to_string());
        }
        let known = |number: usize| ended.contains(&number.to_string());
        assert_eq!(
            [known(0), known(1), known(ENDED), known(ENDED + 1)],
            [false, true, true, false]
        );
        assert_eq!((ended.ids.len(), ended.order.len()), (ENDED, ENDED));
    }
}
