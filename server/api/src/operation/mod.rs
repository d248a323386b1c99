//! Operations in the core's terms: requests to a driver, and their outcomes. The wire has other
//! types, known only to the sessions.

mod dispatch;
mod failure;
mod metadata;
mod outcome;
mod pool;
mod reason;
mod record;
mod term;
mod user_data;
mod view;

pub use dispatch::{ClassReference, Dispatch, Lane, Request, Target};
pub use failure::{Failure, InfrastructureError, LONGEST_WAIT, Stranger};
pub use metadata::MachineMetadata;
pub use outcome::{ClassReview, Outcome, Success};
pub use pool::{PoolInstance, PoolInstanceState, PoolModel, PoolRecord, PoolSize, PoolTraits};
pub use reason::Reason;
pub use record::{InstanceRecord, Part, Power};
pub use term::Term;
pub use user_data::UserData;
pub use view::{Finished, InFlight, OperationView, Place, Progress};
