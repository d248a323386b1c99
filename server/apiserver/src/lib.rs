#![doc = include_str!("../README.md")]

pub mod auth;
pub mod backup;
pub mod clock;
pub mod context;
mod control;
#[cfg(any(feature = "fuzz", test))]
pub mod fuzz;
mod kinds;
mod rest;
pub mod serve;
pub mod store;
