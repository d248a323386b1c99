//! In whose name a core acts.

/// A term of leadership: a later leader has a greater one. Zero: this core leads nothing and only looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Term(pub u32);
