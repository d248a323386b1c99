//! Decisions of MachineDeployments: one file per rule.

pub mod counts;
pub mod rolling;
pub mod scaling;
