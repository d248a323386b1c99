//! What a driver author sees: the [`Driver`] trait, [`run`], errors, class and secret access.

mod cache;
mod class;
mod connect;
mod context;
mod driver;
mod endpoint;
mod error;
mod instance;
mod library;
mod options;
mod request;
mod run;
mod secret;
mod session;
pub mod testing;

pub use class::{Class, Shape};
pub use connect::{ConnectError, Connection, Connector};
pub use context::Context;
pub use driver::{Driver, DriverInfo, OptionalOperation};
pub use error::{Certainty, Code, DriverError, Violation};
pub use instance::{Instance, PowerState};
pub use options::{DriverArgs, Options};
pub use request::{
    ClassReview, CreateMachine, DeleteMachine, GetMachineStatus, GetVolumeIds, InitializeMachine,
    ListMachines, Target, UpdateMachine, Updated, ValidateClass,
};
pub use run::{RunError, run, run_with, run_with_args};
pub use secret::Secret;
pub use tokio_util::sync::CancellationToken;
