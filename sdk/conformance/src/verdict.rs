//! The verdict of a check.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::outcome::Tier;

/// The result of one check.
#[derive(Debug, Clone, Serialize)]
pub struct CheckResult {
    /// `group/name`.
    pub name: String,
    /// How binding the rule is.
    pub tier: Tier,
    /// The rule.
    pub sentence: String,
    /// What came out.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// In seconds.
    #[serde(serialize_with = "seconds")]
    pub took: Duration,
}

/// What came out of a check.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// The rule holds.
    Passed,
    /// The check was not done.
    Skipped {
        /// Why.
        reason: String,
        /// False: the rule is about something that the driver does not have.
        applies: bool,
    },
    /// The rule does not hold.
    Failed(Box<Finding>),
}

/// A rule that does not hold, with all that helps to fix it.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What the suite did last, oldest first.
    pub did: Vec<String>,
    /// What the contract asks for.
    pub expected: String,
    /// What the driver did.
    pub came: String,
    /// What goes wrong when the rule does not hold.
    pub why: String,
    /// Where the contract says so.
    pub manual: String,
    /// The last lines that the driver printed.
    pub output: Vec<String>,
}

/// A time in seconds.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
