//! A work queue of keys: first in first out with de-duplication, two priorities, one worker per key, bounded
//! concurrency, and a backoff per key that events neither bypass nor lengthen.
//!
//! `schedule` holds every rule and has no clock; `worker` drives it on tokio's clock. The queue is bounded by the
//! number of distinct keys, i.e. of API objects.
//!
//! Kept by hand: the scheduler of kube-runtime has no priorities, no backoff per key and no bound of concurrency.

mod backoff;
mod metrics;
mod schedule;
mod worker;

pub use backoff::Backoff;
pub use metrics::QueueMetrics;
pub use schedule::{Outcome, Priority};
pub use worker::{Queue, QueueSettings};
