//! The kinds of patches: JSON patch, JSON merge patch, strategic merge patch.

pub mod json;
mod merge;
pub mod strategic;

pub use merge::merge;
