//! An embedded Kubernetes-compatible API server. It knows no Machine.
//!
//! The parts, from the disk outwards:
//!
//! * [`store`]: one ordered, durable revision log for all kinds, and watches over it.
//! * `kinds`, `schema`, `builtin_types`: what can be stored, and what it must look like.
//! * `rest`, `patch`, `apply`, `status`: what a request means, and who owns which field.
//! * `discovery`, `openapi`, `table`: what clients read to find their way.
//! * [`auth`]: who asks, and whether they may. `certificates`: those of the server, and those that
//!   clients ask for and show.
//! * `controllers`: garbage collection and what else a control plane does by itself.
//! * [`serving`]: all of it as a tower service in process, and over HTTPS.

mod apply;
pub mod auth;
pub mod backup;
mod builtin_types;
mod certificates;
pub mod clock;
pub mod context;
mod controllers;
mod discovery;
mod document;
mod field;
#[cfg(any(feature = "fuzz", test))]
pub mod fuzz;
mod kinds;
mod openapi;
mod patch;
mod rest;
mod schema;
mod selector;
pub mod serving;
mod status;
pub mod store;
mod table;
