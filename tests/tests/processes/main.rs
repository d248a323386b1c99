//! The built binaries as real processes, with real sockets, kubectl and signals.
//!
//! Memory and latency are measured on the processes that a test starts, never on this process.

mod attacks;
mod canary;
mod capi;
mod chart;
mod e2e;
mod faults;
mod fidelity;
mod mcm;
mod sdks;
mod sockets;
mod takeover;
mod trees;
mod unary;
mod users;
