//! Everything that a driver author needs.
//!
//! A driver is a process of its own. The process dials in to the core, names its provider, and carries out the core's
//! operations: implement [`Driver`], hand it to [`run`], done. A complete driver:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use ostler_driver_sdk::{
//!     CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo, GetMachineStatus,
//!     Instance, ListMachines,
//! };
//! # mod cloud {
//! #     pub struct Cloud;
//! #     pub struct Vm { pub id: String, pub name: String, pub uid: String }
//! #     impl Cloud {
//! #         pub fn from_env() -> Self { Self }
//! #         pub async fn find(&self, _: &ostler_driver_sdk::Identity) -> std::io::Result<Option<Vm>> { Ok(None) }
//! #         pub async fn boot(&self, _: &Size, _: &[u8], _: &std::collections::BTreeMap<String, String>) -> std::io::Result<Vm> { unimplemented!() }
//! #         pub async fn delete(&self, _: &ostler_driver_sdk::Identity) -> std::io::Result<bool> { Ok(true) }
//! #         pub async fn all(&self, _: &str) -> std::io::Result<Vec<Vm>> { Ok(vec![]) }
//! #     }
//! #     #[derive(serde::Deserialize)]
//! #     pub struct Size {}
//! #     impl From<Vm> for ostler_driver_sdk::Instance {
//! #         fn from(vm: Vm) -> Self { Self::new(vm.id).machine(vm.name, vm.uid) }
//! #     }
//! # }
//! # use cloud::{Cloud, Size};
//!
//! struct MyDriver(Cloud);
//!
//! impl Driver for MyDriver {
//!     fn info(&self) -> DriverInfo {
//!         DriverInfo::new("cloud.example.com").version(env!("CARGO_PKG_VERSION"))
//!     }
//!
//!     async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
//!         let (ctx, class) = (&request.ctx, request.ctx.class().await?);
//!         if let Some(vm) = self.0.find(&ctx.identity()).await? {
//!             return Ok(vm.into());
//!         }
//!         let size: Size = class.spec()?;
//!         Ok(self.0.boot(&size, request.user_data(), &request.tags).await?.into())
//!     }
//!
//!     async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
//!         let was = self.0.delete(&request.ctx.identity()).await?;
//!         Ok(if was { Deletion::Deleted } else { Deletion::WasAbsent })
//!     }
//!
//!     async fn get_machine_status(
//!         &self,
//!         request: GetMachineStatus,
//!     ) -> Result<Instance, DriverError> {
//!         let found = self.0.find(&request.ctx.identity()).await?;
//!         found.map(Into::into).ok_or_else(|| DriverError::not_found("no such VM"))
//!     }
//!
//!     async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
//!         Ok(self.0.all(request.ctx.cluster_id()).await?.into_iter().map(Into::into).collect())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     ostler_driver_sdk::run(MyDriver(Cloud::from_env())).await
//! }
//! ```
//!
//! [`Context::identity`] says whose the instance is: cluster, name and UID of the machine, which are its tags
//! ([`Identity::tags`]) and by which it is found again.
//!
//! [`run`] takes the endpoint of the core from `--endpoint` or `OSTLER_ENDPOINT`, and the token to
//! show there from the file in `OSTLER_TOKEN_FILE` ([`DriverArgs`] has them all). It keeps the
//! session alive, answers what is delivered twice only once, keeps results until the core has them,
//! comes back after any loss, and ends in order on SIGTERM.
//!
//! What each verb has to promise is said at [`Driver`], and in full in the `.proto` files, which are
//! the contract. [`testing::TestContext`] makes the context for a unit test of a verb.

mod class;
mod connect;
mod context;
mod diagnosis;
mod driver;
mod endpoint;
mod error;
mod events;
pub mod handler;
pub mod hot;
pub mod identity;
mod instance;
mod library;
mod limits;
mod metadata;
mod options;
mod pool;
mod readiness;
mod request;
mod run;
mod secret;
mod session;
pub mod testing;

#[cfg(any(feature = "fuzz", test))]
pub use session::fuzz;

pub use class::{Class, Shape};
pub use connect::{ConnectError, Connection, Connector, Cutter};
pub use context::Context;
pub use driver::{Driver, DriverInfo, OptionalOperation, ProviderIdComparison};
pub use error::{Certainty, Code, DriverError, Violation};
pub use events::{Event, Events};
pub use hot::HotSpec;
pub use identity::{Identity, PoolIdentity, Target};
pub use instance::{Instance, Part, PowerState};
pub use metadata::MachineMetadata;
pub use options::{DriverArgs, Options};
/// Implements [`HotSpec`](trait@HotSpec) for a provider spec.
pub use ostler_driver_sdk_derive::HotSpec;
pub use pool::{
    CreatePool, DeletePool, DeletePoolMachines, GetPoolStatus, ListPools, Pool, PoolDeletion,
    PoolInstance, PoolMachinesDeleted, PoolModel, PoolSize, PoolState, PoolStatus, UpdatePool,
    UpdatePoolMachine,
};
pub use readiness::Readiness;
pub use request::{
    ClassReview, CreateMachine, DeleteMachine, Deletion, GetMachineStatus, GetVolumeIds,
    InitializeMachine, ListMachines, UpdateMachine, Updated, UserData, ValidateClass,
};
pub use run::{
    RunError, init_logs, is_provider, options, run, run_adjusted, run_handler, run_with,
    run_with_args,
};
pub use secret::Secret;
/// Cancels and ends things: see [`Options::shutdown`].
pub use tokio_util::sync::CancellationToken;
