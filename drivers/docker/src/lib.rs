//! Makes machines out of containers on a Docker Engine. Made to be copied:
//!
//! * [`spec`]: the provider spec of a class. Pure
//! * [`identity`], [`tags`]: the owner of a container, and its tags. Pure
//! * [`engine`]: the Docker Engine, and the only place that knows its client library
//! * `errors`: what the engine says, in terms of the contract
//! * [`DockerDriver`]: the verbs, each a few questions to the engine
//! * [`run`]: all of it as a process

mod driver;
pub mod engine;
mod errors;
pub mod identity;
mod outage;
mod probe;
mod run;
pub mod spec;
pub mod tags;
#[path = "../../../proto/version.rs"]
mod version;

pub use driver::{DockerDriver, PROVIDER};
pub use engine::{DockerHost, EngineError, bridge_gateway};
pub use outage::{Break, OutageArgs, outage};
pub use probe::{ProbeArgs, probe};
pub use run::{Cli, DockerArgs, run, start};
