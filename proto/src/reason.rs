//! The reasons of a failed operation that the core acts on, and their words.

use crate::v1alpha1::{MachineErrorReason, OperationError};

const PREFIX: &str = "MACHINE_ERROR_REASON_";

impl MachineErrorReason {
    /// Its name, as `OperationError.reason` has it; empty for none.
    pub fn word(self) -> &'static str {
        if self == Self::Unspecified {
            return "";
        }
        self.as_str_name().trim_start_matches(PREFIX)
    }

    /// The reason of this name; any other word is none.
    pub fn of_word(word: &str) -> Self {
        Self::from_str_name(&format!("{PREFIX}{word}")).unwrap_or_default()
    }
}

impl OperationError {
    /// The reason that the core acts on. A driver of contract v1alpha1-0.1 says it by the word alone.
    pub fn acts_by(&self) -> MachineErrorReason {
        let typed = self.typed_reason();
        if typed == MachineErrorReason::Unspecified {
            return MachineErrorReason::of_word(&self.reason);
        }
        typed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_decides_before_the_word_and_the_word_where_there_is_no_type_that_is_known() {
        use MachineErrorReason as Reason;
        for (typed, word, expected) in [
            (Reason::Throttled.into(), "THROTTLED", Reason::Throttled),
            (Reason::Throttled.into(), "NOT_OURS", Reason::Throttled),
            (Reason::Throttled.into(), "RATE_EXCEEDED", Reason::Throttled),
            (0, "NOT_OURS", Reason::NotOurs),
            (99, "NOT_OURS", Reason::NotOurs),
            (99, "NEW_WORD", Reason::Unspecified),
            (0, "QUOTA_VCPU", Reason::Unspecified),
            (0, "UNSPECIFIED", Reason::Unspecified),
            (0, "", Reason::Unspecified),
        ] {
            let error = OperationError {
                typed_reason: typed,
                reason: word.to_owned(),
                ..OperationError::default()
            };
            assert_eq!(error.acts_by(), expected, "{typed} {word}");
        }
    }

    #[test]
    fn a_reason_is_found_by_its_word() {
        for reason in (1..).map_while(|number| MachineErrorReason::try_from(number).ok()) {
            assert_eq!(MachineErrorReason::of_word(reason.word()), reason);
        }
        assert_eq!(MachineErrorReason::NotHotUpdatable.word(), "NOT_HOT_UPDATABLE");
    }
}
