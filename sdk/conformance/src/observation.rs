//! What a driver did wrong outside of the check that looks for it.

use std::sync::Arc;

use parking_lot::Mutex;

/// The first few tell enough.
const KEPT: usize = 200;

/// Rules that hold in every session, whatever a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Hello first, frames without a gap.
    HelloFirst,
    /// Register without a deadline.
    NoDeadline,
    /// Sizes of frames, messages, checkpoints, ids.
    Limits,
    /// Reasons that contradict neither their type nor their code.
    Reasons,
    /// Secrets only for operations in flight.
    SecretScope,
}

impl Rule {
    /// The check whose rule it is.
    pub(crate) fn check(self) -> &'static str {
        match self {
            Self::HelloFirst => "session/hello-first",
            Self::NoDeadline => "session/no-deadline",
            Self::Limits => "session/limits",
            Self::Reasons => "status/reasons",
            Self::SecretScope => "secret/scope",
        }
    }
}

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) rule: Rule,
    pub(crate) came: String,
}

/// All of them, over the whole run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observations(Arc<Mutex<Vec<Observation>>>);

impl Observations {
    pub(crate) fn add(&self, rule: Rule, came: impl Into<String>) {
        let mut all = self.0.lock();
        if all.len() < KEPT {
            all.push(Observation { rule, came: came.into() });
        }
    }

    /// How often a rule was broken, and how the first time.
    pub(crate) fn of(&self, check: &str) -> Option<String> {
        let all = self.0.lock();
        let mut hits = all.iter().filter(|seen| seen.rule.check() == check);
        let first = hits.next()?.came.clone();
        match hits.count() {
            0 => Some(first),
            more => Some(format!("{first} (and {more} times more)")),
        }
    }
}
