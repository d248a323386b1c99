//! The effect shell: observe, execute and record over the Kubernetes API and driver sessions.

mod clock;
mod cluster_id;
pub mod election;
pub mod events;
pub mod queue;
mod schema_check;
pub mod watch;

pub use clock::{Clock, system as system_clock};
pub use cluster_id::{ClusterIdError, cluster_id};
pub use schema_check::{PrunedField, SchemaError, check_schemas};
