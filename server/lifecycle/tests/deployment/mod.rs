//! Decisions of MachineDeployments, as tables.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod absent;
mod adopted;
mod chosen;
mod generated;
mod goes_first;
mod in_place;
mod numbers;
mod passes;
mod properties;
mod rollback;
mod shared_budget;
mod world;
