//! What a driver did wrong outside of the check that looks for it.

use std::sync::Arc;
use std::time::Duration;

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
    /// Reasons in agreement with type and code.
    Reasons,
    /// Secrets only for operations in flight.
    SecretScope,
    /// Lists that show at once what was made, or as late as the driver says.
    ListAtOnce,
}

impl Rule {
    /// The check of the rule.
    pub(crate) fn check(self) -> &'static str {
        match self {
            Self::HelloFirst => "session/hello-first",
            Self::NoDeadline => "session/no-deadline",
            Self::Limits => "session/limits",
            Self::Reasons => "status/reasons",
            Self::SecretScope => "secret/scope",
            Self::ListAtOnce => "list/at-once",
        }
    }
}

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) rule: Rule,
    pub(crate) came: String,
}

/// What a run has waited for without success: it does not wait for the same in every check.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    deleting: Mutex<Duration>,
    listing: Mutex<bool>,
    first_start: Mutex<Duration>,
}

impl Marks {
    /// How long deletions were repeated that never worked.
    pub(crate) fn undeleted(&self) -> Duration {
        *self.deleting.lock()
    }

    pub(crate) fn not_deleted_for(&self, time: Duration) {
        *self.deleting.lock() += time;
    }

    /// How long the driver took to start for the first time: this computer has as much to do later.
    pub(crate) fn first_start(&self) -> Duration {
        *self.first_start.lock()
    }

    pub(crate) fn started_in(&self, time: Duration) {
        *self.first_start.lock() = time;
    }

    /// Whether a list never showed what it was waited for.
    pub(crate) fn is_list_wrong(&self) -> bool {
        *self.listing.lock()
    }

    pub(crate) fn list_is_wrong(&self) {
        *self.listing.lock() = true;
    }
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
