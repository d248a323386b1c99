//! Simulated kubelets: what runs inside the instances.
//!
//! A kubelet joins with the bootstrap token of its user data, renews its Lease, runs and ends the
//! pods that are bound to its Node, and vanishes with its instance. All share two watches and a
//! bounded number of requests, so that a thousand of them are cheap.

mod cache;
mod fleet;
mod life;
mod node;
mod pods;
mod watch;

pub use fleet::Kubelets;
