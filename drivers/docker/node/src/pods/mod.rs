//! The pods bound to this node.
//!
//! A container with a `command` is a process beside the agent; one without is a pause, which only waits to be ended. Images are not
//! pulled: commands come from the image of the machine. `decide` says what is to be done for a pod, `state` what follows from what
//! was done, `status` what the API is told; `work` does it.

mod decide;
mod expand;
mod log;
mod process;
mod report;
mod spec;
mod state;
mod status;
mod work;

pub(crate) use work::{Work, WorkSetup};
