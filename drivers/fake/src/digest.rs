//! Short names for long texts.

use sha2::{Digest, Sha256};

/// 16 hexadecimal digits that stand for `text`.
pub(crate) fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let head = digest.iter().take(8).fold(0_u64, |head, byte| head << 8 | u64::from(*byte));
    format!("{head:016x}")
}
