//! Copies of what the API server holds, kept by watches.
//!
//! Each kind has a [`Cache`]: trimmed objects and their indexes under one lock, so that an index
//! never disagrees with the objects. Each watch is a task of its own with a backoff of its own;
//! a broken one never slows another. The answers to our own writes go into the cache as well
//! ([`Cache::update`]), so that a worker never sees an object older than its own last write.
//!
//! An object that cannot be read stops nobody: it is skipped, told once for each revision and counted. It is
//! not absent: the cache keeps what could be read of it last, and says that there is one
//! ([`Cache::has_unreadable`]), so that nothing is deleted for not being there.

mod cache;
mod lenient;
mod metrics;
mod on_demand;
mod reflector;
mod revision;

pub use cache::{Cache, Cached, Change, ObjectName, Seen};
pub use lenient::{Lenient, Unreadable};
pub use metrics::WatchMetrics;
pub use on_demand::OnDemand;
pub use reflector::{OnChange, Reflector, run};
pub use revision::Revision;
