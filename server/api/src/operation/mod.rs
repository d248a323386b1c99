//! Operations as the core speaks of them: what is sent to a driver, and what came back. The wire has
//! types of its own, which only the sessions know.

mod dispatch;
mod metadata;
mod outcome;
mod pool;
mod reason;
mod term;
mod view;

pub use dispatch::{ClassReference, Dispatch, Lane, Request, Target, UserData};
pub use metadata::MachineMetadata;
pub use outcome::{
    ClassReview, Failure, InfrastructureError, InstanceRecord, Outcome, Stranger, Success,
};
pub use pool::{PoolInstance, PoolInstanceState, PoolModel, PoolRecord, PoolSize, PoolTraits};
pub use reason::Reason;
pub use term::Term;
pub use view::{Finished, InFlight, OperationView, Progress};
