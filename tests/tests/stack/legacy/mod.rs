//! Drivers of the first proposal against the whole stack in one process, on a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

mod answers;
mod life;
mod reads;
mod scene;
mod streams;
