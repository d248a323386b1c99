//! Caches of API objects, filled by watches.
//!
//! Each kind has a [`Cache`]: trimmed objects and their indexes under one lock, so that an index never disagrees with
//! the objects. Each watch is a task with its own backoff, so a broken one never slows another. The answers to our own
//! writes go into the cache as well ([`Cache::update`]), so that a worker never sees an object older than its own last
//! write. The state that others knew before is kept until the event of the write arrives: the write is a change to
//! them, and names its [`Author`], which need not be told.
//!
//! Kept by hand: kube's reflector `Store` has no indexes and does not take the answers to our own writes.
//!
//! An object that cannot be read blocks no other: it is skipped, logged once for each revision and counted. Such an
//! object does not count as absent: the cache keeps its last readable version and reports the object as existing
//! ([`Cache::has_unreadable`]), so that nothing is deleted because the object is missing.

mod author;
mod cache;
mod failure;
mod found;
mod lenient;
mod metrics;
mod names;
mod object_name;
mod on_demand;
mod reflector;
mod revision;

pub use author::Author;
#[cfg(debug_assertions)]
pub use cache::handed_out;
pub use cache::{Cache, CacheIndex, Change, Seen};
pub use failure::{causes, message_of, status_of, watch_failed};
pub use found::Found;
pub use lenient::{Lenient, Unreadable, cannot_be_read};
pub use metrics::WatchMetrics;
pub use object_name::ObjectName;
pub use on_demand::OnDemand;
pub use reflector::{Reflector, run};
pub use revision::ResourceVersion;
