//! The core's side of the protocol against drivers written by hand, over in-memory connections
//! and on a paused clock.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unwrap_in_result,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod access;
mod audit;
mod claims;
mod core;
mod debug;
mod dispatch;
mod drain;
mod driver;
mod faults;
mod flow;
mod handed_back;
mod hints;
mod leadership;
mod life;
mod lists;
mod looking;
mod pools;
mod port;
mod resume;
mod roles;
mod serving;
