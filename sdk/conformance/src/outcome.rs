//! How a check ends before its end, and how much that matters.

use std::fmt::{Debug, Display};

use serde::Serialize;

/// How binding a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Tier {
    /// Every driver keeps it.
    Must,
    /// Every driver that offers the capability keeps it.
    Capability,
    /// A driver that breaks the rule still works, but worse.
    Should,
}

impl Tier {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Capability => "CAPABILITY",
            Self::Should => "SHOULD",
        }
    }
}

/// What a check expected, and what came instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the contract asks for.
    pub(crate) expected: String,
    /// What the driver did.
    pub(crate) came: String,
}

/// Why a check ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotPassed {
    /// The driver broke the rule.
    Failed(Failure),
    /// The check could not be done.
    Skipped(String),
    /// The rule is about something that this driver does not have.
    NotOffered(String),
}

/// What a step of a check returns.
pub(crate) type Outcome<T = ()> = Result<T, NotPassed>;

/// The driver did something else than it should.
pub(crate) fn failed(expected: impl Display, came: impl Display) -> NotPassed {
    NotPassed::Failed(Failure { expected: expected.to_string(), came: came.to_string() })
}

/// The check has nothing to say, for this reason.
pub(crate) fn skipped(reason: impl Display) -> NotPassed {
    NotPassed::Skipped(reason.to_string())
}

/// The check is about something that this driver does not have.
pub(crate) fn not_offered(what: impl Display) -> NotPassed {
    NotPassed::NotOffered(what.to_string())
}

/// Goes on only if `ok`.
pub(crate) fn ensure(ok: bool, expected: impl Display, came: impl Display) -> Outcome {
    if ok { Ok(()) } else { Err(failed(expected, came)) }
}

/// Goes on only if the driver said what the contract asks for.
pub(crate) fn same<T: PartialEq + Debug + ?Sized>(what: &str, came: &T, wanted: &T) -> Outcome {
    ensure(came == wanted, format_args!("{what} {wanted:?}"), format_args!("{came:?}"))
}
