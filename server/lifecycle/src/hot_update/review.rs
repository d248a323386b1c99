//! The driver's review of a class and of its edits, before any instance is touched.

use ostler_api::Revision;
pub use ostler_api::operation::ClassReview;
use ostler_api::{Machine, driver::OperationKind, machine::WaitReason, names};

use crate::{class_facts::ClassFacts, digest, driver::DriverFacts};

/// A question to a driver about a class. The answer is the same for every Machine with the same last applied spec, so
/// it is asked once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// Revision of the class, see [`ClassFacts`].
    pub class_revision: Revision,
    /// The spec that the instance counts as having, as canonical JSON; empty: none is known, and only the class
    /// itself is looked at.
    pub old_spec: String,
    /// Name and version of the driver that is asked.
    pub driver: String,
}

impl Question {
    /// The question to the driver before the update of this Machine's instance; `None`: no question, since the instance
    /// has the spec of the class already, or the driver cannot review classes.
    pub fn of(machine: &Machine, class: &ClassFacts, driver: &DriverFacts) -> Option<Self> {
        let applied = standing(machine);
        // The usual case, which costs no parsing.
        if applied == class.provider_spec {
            return None;
        }
        Self::about(digest::canonical_text(applied).unwrap_or_default(), class, driver)
    }

    /// The same for an instance with this spec, as canonical JSON.
    pub(crate) fn about(
        old_spec: String,
        class: &ClassFacts,
        driver: &DriverFacts,
    ) -> Option<Self> {
        let asks = driver.has(OperationKind::ValidateClass) && old_spec != class.provider_spec;
        asks.then(|| Self {
            class_revision: class.revision.clone(),
            old_spec,
            driver: driver.identity.clone(),
        })
    }
}

/// The spec that the instance of a Machine counts as having, as JSON; empty: none is known.
pub(crate) fn standing(machine: &Machine) -> &str {
    let noted = |key| machine.annotation(key);
    let settled = noted(names::annotation::SETTLED_PROVIDER_SPEC);
    settled.or_else(|| noted(names::annotation::LAST_APPLIED_PROVIDER_SPEC)).unwrap_or_default()
}

/// The known answer to the [`Question`] of a Machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReviewView {
    /// The driver was not asked.
    #[default]
    NotAsked,
    /// The driver was asked and has not answered.
    Asked,
    /// The driver could not answer; it is asked again.
    Failed {
        /// The wait reason.
        reason: WaitReason,
        /// Code and text of the failure.
        message: String,
    },
    /// The driver cannot tell: go on without.
    NoAnswer,
    /// The answer.
    Known(ClassReview),
}
