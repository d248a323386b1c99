//! Drain and deletion through the whole stack, on a paused clock.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod budgets;
mod deletion;
mod ground;
mod volumes;
