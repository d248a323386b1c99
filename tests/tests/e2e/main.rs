//! End to end: real processes, real sockets, real kubectl.
//!
//! Without kubectl these tests say `skipped: kubectl not found`. With `OSTLER_TEST_KUBECONFIG` set, all of them but those
//! that kill the API server run against the cluster it names, one after the other, in its namespace `default`, which they
//! leave without machines.

#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod bad_input;
mod class_name;
mod crash;
mod debugging;
mod deployment;
mod docker;
mod drain;
mod grpc;
mod hot_update;
mod joining;
mod legacy;
mod manifests;
mod node;
mod preboot;
mod rolling;
mod sanity;
mod story;
mod up;
