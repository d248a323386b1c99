//! The kinds of patches: JSON patch, JSON merge patch, strategic merge patch.

pub(crate) mod json;
mod merge;
pub(crate) mod strategic;

pub(crate) use merge::merge;
