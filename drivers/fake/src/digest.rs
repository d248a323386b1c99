//! Short names for long texts.

use sha2::{Digest, Sha256};

/// 16 hexadecimal digits that stand for `text`.
pub(crate) fn short_digest(text: &str) -> String {
    format!("{:.16}", hex::encode(Sha256::digest(text)))
}
