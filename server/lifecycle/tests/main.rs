//! What is decided, as tables over plain values.

mod api;
mod autoscaler;
mod deployment;
mod freeze;
mod health_check;
mod machine;
mod pool;
mod reserve;
mod set;
