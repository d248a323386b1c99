//! Whose word counts: terms of leadership, compared within one order.

use std::collections::VecDeque;

/// Orders that are remembered after they were left. A new one begins when the record of
/// leadership is deleted, so this is more than any driver will see.
const LEFT: usize = 16;

/// What a core that lost its leadership says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stale {
    /// Its term.
    pub(crate) term: u64,
    /// The highest seen.
    pub(crate) highest: u64,
}

/// The highest term seen, and the orders that are over. Lives as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    order: Option<String>,
    term: u64,
    /// Oldest first. No cache: a look at one must not keep it.
    left: VecDeque<String>,
}

impl Fence {
    /// A core speaks in this term: remembers it, unless another core has taken over since. One
    /// without an order only looks, and leaves no trace.
    pub(crate) fn enter(&mut self, order: &str, term: u64) -> Result<(), Stale> {
        if order.is_empty() {
            return Ok(());
        }
        let stale = Stale { term, highest: self.term };
        let same = self.order.as_deref() == Some(order);
        if (same && term < self.term) || self.left.iter().any(|left| left == order) {
            return Err(stale);
        }
        if !same && let Some(left) = self.order.replace(order.to_owned()) {
            self.left.push_back(left);
            if self.left.len() > LEFT {
                self.left.pop_front();
            }
        }
        self.term = term;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_grow_within_an_order_and_start_afresh_in_a_new_one() {
        let mut fence = Fence::default();
        for (order, term, fresh) in [
            ("a", 7, true),
            ("a", 7, true),
            ("a", 6, false),
            ("a", 8, true),
            ("b", 0, true),
            ("a", 9, false),
            ("b", 1, true),
            ("b", 0, false),
        ] {
            assert_eq!(fence.enter(order, term).is_ok(), fresh, "{order} {term}");
        }
    }

    #[test]
    fn a_core_that_only_looks_leaves_no_trace() {
        let mut fence = Fence::default();
        for (order, term, fresh) in [
            ("", 0, true),
            ("a", 7, true),
            ("", 0, true),
            ("a", 6, false),
            ("a", 7, true),
            ("", 9, true),
        ] {
            assert_eq!(fence.enter(order, term).is_ok(), fresh, "{order:?} {term}");
        }
        assert!(fence.left.is_empty());
    }

    #[test]
    fn only_the_last_orders_that_were_left_are_remembered() {
        let mut fence = Fence::default();
        for order in 0..=LEFT + 1 {
            fence.enter(&order.to_string(), 1).unwrap();
        }
        assert_eq!(fence.left.len(), LEFT);
        assert!(fence.enter("1", 1).is_err());
    }
}
