//! The sizes that the contract allows, kept before anything is sent.

use ostler_proto::v1alpha1 as proto;

/// Whatever has no user data and no provider spec in it; leaves room for the frame around it.
pub(crate) const FRAME_BYTES: usize = 64 * 1024;
/// The hard limit of any frame.
pub(crate) const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// A checkpoint.
pub(crate) const CHECKPOINT_BYTES: usize = 4 * 1024;
const MESSAGE_BYTES: usize = 2 * 1024;
/// An id or a word.
pub(crate) const WORD_BYTES: usize = 256;
/// Ids that a cluster had before.
const PREVIOUS_CLUSTERS: usize = 8;
/// So many violations with their descriptions stay below half a frame.
const VIOLATIONS: usize = 64;
const VIOLATION_BYTES: usize = 512;

/// `text`, cut at a character so that it fits; the cut is marked.
pub(crate) fn cut(mut text: String, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() > limit {
        let mut end = limit.saturating_sub(MARK.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
        // What is cut may wait in a queue: with the room of the whole it would not be small.
        text.shrink_to_fit();
    }
    text
}

/// A text for people that goes where words go.
pub(crate) fn cut_word(text: String) -> String {
    cut(text, WORD_BYTES)
}

/// A text for people.
pub(crate) fn cut_message(text: String) -> String {
    cut(text, MESSAGE_BYTES)
}

/// What is wrong with the ids that a cluster is said to have had. An empty one would make every
/// instance without a tag its own.
pub(crate) fn wrong_cluster_ids(ids: &[String]) -> Option<String> {
    if ids.len() > PREVIOUS_CLUSTERS {
        return Some(format!("{} previous cluster ids, more than {PREVIOUS_CLUSTERS}", ids.len()));
    }
    let wrong = ids.iter().find(|id| id.is_empty() || id.len() > WORD_BYTES)?;
    Some(format!("a previous cluster id of {} bytes, not 1 to {WORD_BYTES}", wrong.len()))
}

/// An error with every text in its limit.
pub(crate) fn cut_error(mut error: proto::OperationError) -> proto::OperationError {
    error.message = cut(error.message, MESSAGE_BYTES);
    error.reason = cut(error.reason, WORD_BYTES);
    error.provider_code = cut(error.provider_code, WORD_BYTES);
    error.provider_request_id = cut(error.provider_request_id, WORD_BYTES);
    error.cluster_id = cut(error.cluster_id, WORD_BYTES);
    error.violations.truncate(VIOLATIONS);
    for violation in &mut error.violations {
        violation.path = cut(std::mem::take(&mut violation.path), WORD_BYTES);
        violation.description = cut(std::mem::take(&mut violation.description), VIOLATION_BYTES);
    }
    error
}

/// Progress with every text in its limit.
pub(crate) fn cut_progress(mut progress: proto::OperationProgress) -> proto::OperationProgress {
    progress.stage = cut(progress.stage, WORD_BYTES);
    progress.message = cut(progress.message, MESSAGE_BYTES);
    progress
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn a_text_is_cut_at_a_character_and_the_cut_is_marked() {
        assert_eq!(cut("short".to_owned(), 10), "short");
        assert_eq!(cut("0123456789ab".to_owned(), 10), "0123456…");
        assert_eq!(cut("ääääää".to_owned(), 10), "äää…");
        assert!(cut("x".repeat(1 << 20), 10).capacity() < 100, "nor is the rest kept");
    }

    #[test]
    fn the_largest_error_fits_a_frame() {
        let long = || "ß".repeat(100_000);
        let violation = proto::FieldViolation { path: long(), description: long() };
        let error = cut_error(proto::OperationError {
            message: long(),
            reason: long(),
            provider_code: long(),
            provider_request_id: long(),
            cluster_id: long(),
            violations: vec![violation; 100],
            ..Default::default()
        });
        assert!(error.message.len() <= 2048, "{}", error.message.len());
        assert!(error.encoded_len() < FRAME_BYTES, "{}", error.encoded_len());
    }
}
