//! Drain and deletion through the whole stack, on a paused clock.

#![expect(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod budgets;
mod deletion;
pub(crate) mod ground;
mod storm;
mod volumes;
