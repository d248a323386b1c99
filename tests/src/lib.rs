//! The harness of Ostler's end-to-end, whole-stack and repository tests.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness fails its test by panicking, with what was seen"
)]

pub mod account;
pub mod bench;
pub mod gate;
pub mod hostile;
pub mod kubectl;
pub mod legacy_driver;
pub mod objects;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod repository;
pub mod rights;
pub mod setup;
pub mod sim;
pub mod stack;
pub mod tools;
pub mod upstream;
pub mod wire;
pub mod world;
