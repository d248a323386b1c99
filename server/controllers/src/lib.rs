//! The effect shell: observe, execute and record over the Kubernetes API and driver sessions.

mod clock;
pub mod election;
pub mod events;
pub mod queue;
pub mod watch;

pub use clock::{Clock, system as system_clock};
