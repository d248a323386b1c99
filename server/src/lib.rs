//! The core: controllers and driver sessions put together. Wiring only.
//!
//! [`Core`] is the core inside another process (`ostler up`, tests); [`command`] is the core alone.

mod admin;
pub mod command;
mod core;
mod health;
mod listen;
mod signals;
mod tokens;

pub use admin::{AdminAddress, AdminListener};
pub use core::{Core, CoreOptions, tcp};
pub use ostler_controllers::Settings;
pub use ostler_sessions::{ListenAddress, Listeners};
pub use signals::on_signal;
pub use tokens::DriverToken;
