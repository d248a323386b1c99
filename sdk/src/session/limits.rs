//! The sizes that the contract allows, checked before sending.

/// A checkpoint.
pub(crate) const CHECKPOINT_BYTES: usize = 4 * 1024;
