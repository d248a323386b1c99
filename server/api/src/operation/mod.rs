//! Operations as the core speaks of them: what is sent to a driver, and what came back. The wire has
//! types of its own, which only the sessions know.

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
