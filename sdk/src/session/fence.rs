//! The core with the highest term counts.

/// The refusal of a core without leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stale {
    /// Its term.
    pub(crate) term: u64,
    /// The highest seen.
    pub(crate) highest: u64,
}

/// The highest term seen. Lives as long as the process.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    highest: u64,
}

impl Fence {
    /// A core speaks in this term: remembers it, unless another core has taken over since. One without a term only
    /// looks, and leaves no trace.
    pub(crate) fn enter(&mut self, term: u64) -> Result<(), Stale> {
        if term != 0 && term < self.highest {
            return Err(Stale { term, highest: self.highest });
        }
        self.highest = self.highest.max(term);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_term_is_stale_and_a_core_that_only_looks_leaves_no_trace() {
        let mut fence = Fence::default();
        for (term, fresh) in [
            (0, true),
            (7, true),
            (7, true),
            (0, true),
            (6, false),
            (8, true),
            (0, true),
            (7, false),
        ] {
            assert_eq!(fence.enter(term).is_ok(), fresh, "{term}");
        }
    }
}
