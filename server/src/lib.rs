//! The core: controllers and driver sessions put together. Wiring, and `access`: who may dial in.
//!
//! [`Core`] is the core inside another process (`ostler up`, tests); [`command`] is the core alone; [`Look`] asks drivers
//! and leads nothing.

mod access;
mod admin;
mod clusters;
pub mod command;
mod core;
mod descriptors;
mod duration;
mod election;
mod flags;
mod fleet;
mod health;
mod klog;
mod legacy;
mod listen;
mod log;
mod look;
mod process;
mod signals;
mod throttle;
mod upstream;
#[path = "../../proto/version.rs"]
mod version;

pub use self::log::{AuditArgs, Log, LogStyle};
pub use access::{DriverToken, TOKEN_AUDIENCE};
pub use admin::AdminListener;
pub use command::{AdoptByName, alias};
pub use core::{Core, CoreOptions, TargetCluster};
pub use descriptors::{Shares, raise as raise_descriptors, shares};
pub use flags::{Becomes, CommandLine, Flag, command_line};
pub use listen::listen_for_drivers;
pub use look::{Look, LookOptions};
pub use ostler_autoscaler::AutoscalerListener;
pub use ostler_controllers::{Connect, GivenIds, Namespaces, Scaler, Settings, Unusable};
pub use ostler_sessions::{ListenAddress, Listeners, TlsFiles};
pub use signals::{Signals, on_signal};
pub use throttle::Throttle;
pub use upstream::normal;
