//! Decisions about MachinePools.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "tests"
)]

mod matching;
mod operations;
mod passes;
mod victims;
mod world;
