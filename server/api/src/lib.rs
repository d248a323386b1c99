//! API types of Ostler: the kinds, their names and the closed enums that all parts share.
//!
//! No I/O here. Start at [`machine`] for the Machine, [`machine_set`] and [`machine_deployment`] for many of them,
//! [`machine_pool`] for a scaling group of them, [`machine_reserve`] for some that are ready before they are needed,
//! [`machine_health_check`] for which of them are replaced,
//! [`machine_class`] for what its instance looks like, [`bootstrap`] for how it becomes a Node, [`operation`] and [`driver`] for what drivers are
//! asked and answer, and [`names`] for the strings that others depend on.

pub mod bootstrap;
mod closed_enum;
pub mod crds;
mod drain_status;
pub mod driver;
pub mod hint;
pub mod history;
mod ids;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_health_check;
pub mod machine_pool;
pub mod machine_reserve;
pub mod machine_set;
mod machine_status;
mod metadata;
pub mod names;
mod open_enum;
pub mod operation;
mod operation_record;
mod paused;
mod reasons;
mod schema;
mod shown_phase;
mod step;
pub mod timeout;
mod wording;

pub use crds::crds;
pub use ids::{
    OperationId, ProviderId, ProviderIdComparison, ProviderName, Revision, SpecDigest, Uid,
};
pub use machine::Machine;
pub use machine_class::MachineClass;
pub use machine_deployment::MachineDeployment;
pub use machine_health_check::MachineHealthCheck;
pub use machine_pool::MachinePool;
pub use machine_reserve::MachineReserve;
pub use machine_set::MachineSet;
pub use operation_record::OperationRecord;
pub use wording::differ_by_numbers_only;
