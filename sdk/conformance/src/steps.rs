//! The steps of a check, for a reader of a failure.

use std::collections::VecDeque;

/// How a check begins says what it is about.
const FIRST: usize = 4;
/// What came before the failure.
const LAST: usize = 8;

/// The first and the last steps of a check.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: usize,
}

impl Steps {
    pub(crate) fn add(&mut self, step: String) {
        if self.first.len() < FIRST {
            return self.first.push(step);
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(step);
    }

    /// In their order, with how many are left out.
    pub(crate) fn shown(&self) -> Vec<String> {
        let gap = (self.left_out > 0).then(|| format!("… {} left out", self.left_out));
        self.first.iter().cloned().chain(gap).chain(self.last.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_and_the_last_ones_are_shown_and_how_many_are_left_out_between_them() {
        let shown = |count: usize| {
            let mut steps = Steps::default();
            (1..=count).for_each(|it| steps.add(it.to_string()));
            steps.shown().join(" ")
        };
        assert_eq!(shown(3), "1 2 3");
        assert_eq!(shown(12), "1 2 3 4 5 6 7 8 9 10 11 12");
        assert_eq!(shown(20), "1 2 3 4 … 8 left out 13 14 15 16 17 18 19 20");
    }
}
