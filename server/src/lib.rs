//! The core: controllers and driver sessions put together. Wiring, and `access`: who may dial in.
//!
//! [`Core`] is the core inside another process (`ostler up`, tests); [`command`] is the core alone.

mod access;
mod admin;
mod clusters;
pub mod command;
mod core;
mod health;
mod legacy;
mod listen;
mod signals;
mod throttle;
mod upstream;

pub use access::{DriverToken, TOKEN_AUDIENCE};
pub use admin::AdminListener;
pub use core::{Core, CoreOptions, TargetCluster, tcp};
pub use ostler_controllers::{Connect, Namespaces, Settings, Unusable};
pub use ostler_sessions::{ListenAddress, Listeners};
pub use signals::on_signal;
pub use upstream::normal;
