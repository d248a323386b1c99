//! Decisions about MachineSets, on plain values.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "tests"
)]

mod autoscaler;
mod claim;
mod copies;
mod count;
mod ending;
mod generated;
mod notices;
mod objects;
mod order;
mod preservation;
mod push_down;
mod reserve;
mod status;
mod streak;
mod template;
mod validation;
