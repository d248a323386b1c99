//! Hostile clients over real sockets against the real binary: each test is one attack, and says what must hold.
//!
//! What every attack is measured by: the memory of the process above that before the attack, and whether others are
//! served meanwhile (see `others.rs`). With `OSTLER_ATTACKS_TABLE=FILE` the figures are written down as Markdown, one row
//! for each attack; take them with the filter `attacks` and `--test-threads 1`, since what runs beside an attack shares
//! the machine with it. With `OSTLER_TEST_BIN=DIR` the binaries of another build are attacked.
//!
//! Attackers come from 127.0.0.1. Those who must be served come from other addresses of loopback, as other machines
//! would, but for the tests that say otherwise.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bodies;
mod client;
mod driver;
mod drivers_port;
mod events;
mod files;
mod frames;
mod http2;
mod identity;
mod liars;
mod lists;
mod memory;
mod others;
mod patches;
mod raw;
mod screens;
mod silence;
mod storm;
mod table;
mod up;
