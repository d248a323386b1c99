//! One Register stream: its protocol, its frames, what waits to be written.

mod close;
pub(crate) mod frames;
pub(crate) mod hello;
pub(crate) mod outbox;

pub(crate) use close::{Close, DOMAIN};
pub(crate) use frames::Frame;
