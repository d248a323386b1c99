//! Reasons in contradiction to the fields beside them.

use ostler_proto::v1alpha1::{
    MachineErrorCode as Code, MachineErrorReason as Reason, OperationError,
};

/// What is wrong with the reason of an error.
pub(crate) fn wrong(error: &OperationError) -> Option<String> {
    let word = &error.reason;
    let Ok(typed) = Reason::try_from(error.typed_reason) else {
        return Some(format!("typed_reason {}, which nobody knows", error.typed_reason));
    };
    if typed != Reason::Unspecified && typed.word() != word {
        return Some(format!("typed_reason {} beside the reason {word:?}", typed.word()));
    }
    let reason = error.acts_by();
    (!fits(reason, error.code()))
        .then(|| format!("the reason {} with {}", reason.word(), error.code().as_str_name()))
}

fn fits(reason: Reason, code: Code) -> bool {
    match reason {
        Reason::Unspecified => true,
        Reason::NotHotUpdatable | Reason::NotOurs => code == Code::FailedPrecondition,
        Reason::Throttled => matches!(code, Code::ResourceExhausted | Code::Unavailable),
        Reason::DriverDraining => code == Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_its_type_and_its_code() {
        let error = |typed: i32, word: &str, code: Code| OperationError {
            code: code.into(),
            reason: word.to_owned(),
            typed_reason: typed,
            ..OperationError::default()
        };
        let not_ours = Reason::NotOurs.into();
        for (typed, word, code, is_wrong) in [
            (0, "QUOTA", Code::ResourceExhausted, false),
            (0, "THROTTLED", Code::Unavailable, false),
            (not_ours, "NOT_OURS", Code::FailedPrecondition, false),
            (not_ours, "NOT_OURS", Code::NotFound, true),
            (not_ours, "STRANGER", Code::FailedPrecondition, true),
            (not_ours, "", Code::FailedPrecondition, true),
            (0, "THROTTLED", Code::InvalidArgument, true),
            (99, "NEW", Code::Internal, true),
        ] {
            assert_eq!(wrong(&error(typed, word, code)).is_some(), is_wrong, "{typed} {word}");
        }
    }
}
