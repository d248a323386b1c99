//! One Register stream: protocol, frames, and the queue of writes.

mod close;
pub(crate) mod frames;
pub(crate) mod hello;
pub(crate) mod outbox;

pub(crate) use close::{Close, DOMAIN};
pub(crate) use frames::Frame;
