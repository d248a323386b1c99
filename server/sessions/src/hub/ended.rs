//! Operations that ended lately, so that a driver that still holds one is told to drop it.

use std::collections::{HashSet, VecDeque};

use super::OpId;

/// A few minutes of a busy core; one that is older is not known, and is not wanted either.
const REMEMBERED: usize = 8192;

/// The ids of operations that ended lately.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    known: HashSet<OpId>,
    order: VecDeque<OpId>,
}

impl Ended {
    /// Remembers an operation, at the price of the oldest.
    pub(crate) fn push(&mut self, id: OpId) {
        if self.known.insert(id.clone()) {
            self.order.push_back(id);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether an operation ended lately.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.known.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_are_remembered() {
        let mut ended = Ended::default();
        for number in 0..=REMEMBERED {
            ended.push(number.to_string().into());
        }
        assert!(!ended.contains("0") && ended.contains("1"));
        assert_eq!(ended.known.len(), REMEMBERED);
    }
}
