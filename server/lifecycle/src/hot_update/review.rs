//! What the driver says of a class and of an edit of it, before any instance is touched.

use std::fmt::Write as _;

use ostler_api::machine::WaitReason;

/// What a driver is asked about a class. The answer is the same for every Machine with the same
/// last applied spec, so it is asked once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// Revision of the class, see [`ClassFacts`](crate::snapshot::ClassFacts).
    pub class_revision: String,
    /// The spec that was last applied, as canonical JSON; empty: none is known, and only the class
    /// itself is looked at.
    pub old_spec: String,
    /// Name and version of the driver that is asked.
    pub driver: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassReview {
    /// What is wrong with the class: paths, and why.
    pub violations: Vec<(String, String)>,
    /// Whether the change can reach a running instance. Of no meaning without an old spec.
    pub hot: bool,
    /// Paths that stand in the way of it.
    pub fixed_paths: Vec<String>,
    /// Allowed, but worth a word.
    pub warnings: Vec<String>,
}

/// How many paths a message names.
const MOST_PATHS: usize = 10;

impl ClassReview {
    /// What is wrong, for people; empty if nothing is.
    pub fn complaint(&self) -> String {
        let all = self.violations.iter().map(|(path, why)| format!("{path}: {why}"));
        listed(all, self.violations.len())
    }

    /// Why the change cannot reach a running instance, for people.
    pub fn refusal(&self) -> String {
        if self.fixed_paths.is_empty() {
            return "the driver does not change this on a running instance".to_owned();
        }
        let paths = listed(self.fixed_paths.iter().cloned(), self.fixed_paths.len());
        format!("{paths} cannot be changed on a running instance")
    }
}

fn listed(items: impl Iterator<Item = String>, count: usize) -> String {
    let mut text = items.take(MOST_PATHS).collect::<Vec<_>>().join("; ");
    if count > MOST_PATHS {
        let _infallible = write!(text, "; and {} more", count - MOST_PATHS);
    }
    text
}

/// What is known of the answer to the [`Question`] of a Machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReviewView {
    /// Nobody looked it up for this pass.
    #[default]
    NotLookedUp,
    /// The driver was asked and has not answered.
    Asked,
    /// The driver could not answer; it is asked again.
    Failed {
        /// What the wait is called.
        reason: WaitReason,
        /// Code and text of the failure.
        message: String,
    },
    /// The driver cannot tell: go on without.
    NoAnswer,
    /// The answer.
    Known(ClassReview),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_paths_and_not_endlessly_many() {
        let paths = |count: usize| ClassReview {
            fixed_paths: (0..count).map(|index| format!("p{index}")).collect(),
            ..ClassReview::default()
        };
        assert_eq!(paths(2).refusal(), "p0; p1 cannot be changed on a running instance");
        assert!(paths(15).refusal().contains("p9; and 5 more"), "{}", paths(15).refusal());
        assert!(!paths(0).refusal().is_empty());
    }
}
