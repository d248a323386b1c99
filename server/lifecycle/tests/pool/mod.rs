//! Decisions about MachinePools.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::unnecessary_wraps,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::wildcard_enum_match_arm,
    clippy::default_trait_access,
    unreachable_pub,
    reason = "tests"
)]

mod absence;
mod configs;
mod losses;
mod matching;
mod operations;
mod passes;
mod reads;
mod refusals;
mod tokens;
mod updates;
mod victims;
mod what_is_said;
mod whose;
mod world;
mod writes;
