//! Reference driver: an in-memory cloud with a journal, simulated kubelets and scripted faults.
//!
//! * [`cloud`]: instances with tags, in a state file that outlives the process
//! * [`spec`]: the provider spec of a class
//! * [`fault`]: failures of chosen calls
//! * [`control`]: the file that changes faults and kubelets while it runs
//! * [`calls`]: the log of what the core asked
//! * [`FakeDriver`]: the verbs of the protocol
//! * [`Kubelets`]: what runs inside the instances
//! * [`run`]: all of it as a process

pub mod calls;
pub mod cloud;
pub mod control;
mod digest;
mod driver;
mod duration;
pub mod fault;
mod kubelet;
mod probe;
mod run;
pub mod spec;

pub use driver::{FakeDriver, PROVIDER};
pub use duration::{GoDuration, NotADuration};
pub use kubelet::Kubelets;
pub use probe::{ProbeArgs, probe};
pub use run::{FakeArgs, run, run_served};
