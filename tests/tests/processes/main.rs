//! The built binaries as real processes, with real sockets, kubectl and signals.
//!
//! What is measured (memory, latency) is measured of the processes that a test starts, never of this one.

mod attacks;
mod canary;
mod capi;
mod chart;
mod e2e;
mod faults;
mod mcm;
mod sdks;
mod sockets;
mod takeover;
mod trees;
mod unary;
mod users;
