//! Drivers over TLS, mTLS, ServiceAccount tokens and unix sockets, against a real core: who gets in, and what those
//! are told who do not.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod authority;
mod autoscaler;
mod identity;
mod stage;
mod transport;
