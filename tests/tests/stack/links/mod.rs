//! Sessions and the SDK on two ends of a TCP connection that a fault proxy spoils. Real sockets, so
//! real time; nothing here is asserted to take a time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod drained;
mod ground;
mod lists;
mod lost;
mod unread;
