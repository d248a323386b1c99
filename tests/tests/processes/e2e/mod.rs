//! End to end: real processes, real sockets, real kubectl.
//!
//! Without kubectl these tests say `skipped: kubectl not found`. With `OSTLER_TEST_KUBECONFIG` set, those of the core run
//! against the cluster it names, one after the other, in its namespace `default`, which they leave without machines. What
//! kills or damages the API server says `skipped` then; what is about `ostler up` (`dashboard`, `dead_instance`, `debugging`, `docker`,
//! `joining`, `node`, `readme`, `terminal`, `unserved`, `up`) or needs no API server runs as ever.

#![expect(clippy::unwrap_used, reason = "tests")]

mod absent;
mod admin;
mod applying;
mod autoscaler;
pub(crate) mod backup;
mod bad_input;
mod class_name;
mod crash;
mod dashboard;
mod dead_instance;
mod debugging;
mod deployment;
mod docker;
mod drain;
mod fleet;
mod grpc;
mod hot_update;
mod joining;
mod legacy;
pub(crate) mod manifests;
mod migrate;
mod node;
mod pool_kills;
mod pools;
mod preboot;
mod proxies;
mod readme;
mod rolling;
mod sanity;
mod skips;
mod specs;
mod story;
mod terminal;
mod unserved;
mod up;
