//! Faults, in the contract's terms.

use std::time::Duration;

use ostler_api::driver::{Certainty, ErrorCode};
use ostler_proto::scrub;
use ostler_proto::v1alpha1::OperationError;

/// The reasons that stand in failures of operations of a driver of the first proposal.
pub(crate) mod reasons {
    /// A failure reported by the driver; legacy drivers have no reasons.
    pub(crate) const DRIVER_ERROR: &str = "LEGACY_DRIVER_ERROR";
    /// The driver does not know the requested class or machine.
    pub(crate) const NOT_KNOWN: &str = "LEGACY_NOT_KNOWN";
    /// The driver's answer does not fit the question.
    pub(crate) const WRONG_ANSWER: &str = "LEGACY_WRONG_ANSWER";
    /// The stream ended before the driver answered.
    pub(crate) const STREAM_LOST: &str = "LEGACY_STREAM_LOST";
    /// The driver did not answer in time.
    pub(crate) const TIMEOUT: &str = "LEGACY_TIMEOUT";
    /// The driver works on another operation, and on one at a time.
    pub(crate) const BUSY: &str = "LEGACY_BUSY";
    /// The class lacks the tags by which the driver finds its instances.
    pub(crate) const CLUSTER_TAGS_MISSING: &str = "LEGACY_CLUSTER_TAGS_MISSING";
    /// An earlier create may still show up.
    pub(crate) const UNSETTLED: &str = "LEGACY_UNSETTLED";
    /// The machine was not listed once; it counts as gone when it is not listed again.
    pub(crate) const NOT_LISTED: &str = "LEGACY_NOT_LISTED";
    /// The driver listed nothing, which does not mean that there is nothing.
    pub(crate) const EMPTY_LIST: &str = "LEGACY_EMPTY_LIST";
    /// Several instances have the name of the machine.
    pub(crate) const SEVERAL: &str = "LEGACY_SEVERAL_INSTANCES";
}

/// Why an operation failed; in a box, because it is large and rare.
pub(crate) type Fault = Box<OperationError>;

/// A failure.
pub(crate) fn failure(
    code: ErrorCode,
    reason: &str,
    message: impl Into<String>,
    certainty: Certainty,
) -> Fault {
    Box::new(OperationError {
        code: code.number(),
        reason: reason.to_owned(),
        message: message.into(),
        certainty: certainty.number(),
        ..OperationError::default()
    })
}

/// Nothing was changed; try again after `wait`.
pub(crate) fn later(reason: &str, message: impl Into<String>, wait: Duration) -> Fault {
    let mut failed = failure(ErrorCode::Unavailable, reason, message, Certainty::NotApplied);
    failed.retry_after = wait.try_into().ok();
    failed
}

/// A failure in a driver's own words. Its text may have the fixed shape of later drivers, with a code; the code never
/// tells the effects.
pub(crate) fn reported(text: &str, certainty: Certainty) -> Fault {
    let coded = coded(text);
    let (code, message) = coded.unwrap_or((ErrorCode::Unknown, text));
    failure(code, reasons::DRIVER_ERROR, message, certainty)
}

/// Without the user data of the machine in the text: the core knows only the class's user data, and these drivers have
/// no SDK.
pub(crate) fn scrubbed(mut fault: Fault, user_data: Option<&[u8]>) -> Fault {
    fault.message = scrub(&fault.message, user_data);
    fault
}

/// `machine codes error: code = [X] message = [Y]`.
fn coded(text: &str) -> Option<(ErrorCode, &str)> {
    let (_, rest) = text.split_once("code = [")?;
    let (name, rest) = rest.split_once(']')?;
    let code = ErrorCode::from_name(name.trim())?;
    let message = rest.split_once("message = [").and_then(|(_, rest)| rest.rsplit_once(']'));
    Some((code, message.map_or(text, |(message, _)| message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_that_a_driver_quotes_does_not_leave_with_its_text() {
        let fault = || reported("cannot send #cloud-config canary: 413", Certainty::Unknown);
        let user_data = b"#cloud-config canary\n".as_slice();
        assert_eq!(scrubbed(fault(), Some(user_data)).message, "cannot send ***: 413");
        assert_eq!(scrubbed(fault(), None), fault());
    }

    #[test]
    fn the_code_in_a_text_counts_and_a_text_without_one_is_unknown() {
        let shaped =
            |code| format!("machine codes error: code = [{code}] message = [no [room] left]");
        let cases = [
            (shaped("ResourceExhausted"), ErrorCode::ResourceExhausted, "no [room] left"),
            (shaped("Initialization"), ErrorCode::Uninitialized, "no [room] left"),
            (shaped("Uninitialized"), ErrorCode::Uninitialized, "no [room] left"),
            ("it broke".to_owned(), ErrorCode::Unknown, "it broke"),
            ("code = [NotFound]".to_owned(), ErrorCode::NotFound, "code = [NotFound]"),
            ("code = [Nonsense] x".to_owned(), ErrorCode::Unknown, "code = [Nonsense] x"),
            ("code = [NotFound".to_owned(), ErrorCode::Unknown, "code = [NotFound"),
        ];
        for (text, code, message) in cases {
            let error = reported(&text, Certainty::Unknown);
            assert_eq!(
                (ErrorCode::from_number(error.code), error.message.as_str()),
                (code, message)
            );
            assert_eq!(error.certainty, Certainty::Unknown.number());
        }
    }
}
