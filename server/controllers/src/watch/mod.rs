//! Copies of what the API server holds, kept by watches.
//!
//! Each kind has a [`Mirror`]: trimmed objects and their indexes under one lock, so that an index
//! never disagrees with the objects. Each watch is a task of its own with a backoff of its own;
//! a broken one never slows another. The answers to our own writes go into the mirror as well
//! ([`Mirror::absorb`]), so that a worker never sees an object older than its own last write.
//!
//! An object that cannot be read stops nobody: it is skipped, told once for each revision and counted. It is
//! not absent: the mirror keeps what could be read of it last, and says that there is one
//! ([`Mirror::has_unreadable`]), so that nothing is deleted for not being there.

mod feed;
mod lenient;
mod metrics;
mod mirror;
mod on_demand;
mod revision;

pub use feed::{Feed, OnChange, run};
pub use lenient::{Lenient, Unreadable};
pub use metrics::WatchMetrics;
pub use mirror::{Change, Mirror, Mirrored, ObjectName, Seen};
pub use on_demand::OnDemand;
pub use revision::Revision;
