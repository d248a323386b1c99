//! The driver against a real Docker Engine. Without one, every test is skipped with a line that says so.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bad;
mod conformance;
mod daemon;
mod docker;
mod events;
mod groups;
mod hundred;
mod image;
mod killed;
mod machine;
mod machines;
mod outage;
mod pull;
mod updates;
