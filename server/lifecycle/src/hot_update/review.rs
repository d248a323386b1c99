//! What the driver says of a class and of an edit of it, before any instance is touched.

use ostler_api::machine::WaitReason;
pub use ostler_api::operation::ClassReview;

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
