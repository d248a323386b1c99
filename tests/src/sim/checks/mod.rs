//! MachineHealthChecks of a life: what users check, and Nodes that are not Ready for a while.

pub mod plans;
pub mod rules;
pub mod users;

use serde::{Deserialize, Serialize};

use super::groups::Group;

/// Whose machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Of {
    /// Machines of a pool.
    Pool(u8),
    /// Machines of a set or a deployment.
    Group(Group),
}

/// How many machines may be unhealthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Most {
    /// All.
    All,
    /// So many.
    Number(u8),
    /// So many of a hundred.
    Percent(u8),
    /// From so many to so many.
    Range(u8, u8),
}

/// A wish about checks. Machines are counted among the selected ones.
#[expect(missing_docs, reason = "each variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// A user has machines checked: how many seconds a Node may be not Ready, and how many a machine may be without a Node.
    Keep { check: u8, of: Of, seconds: u16, startup: u16, most: Most },
    /// A user deletes a check.
    Delete { check: u8 },
    /// The Node of a machine, or of all, is not Ready for a while, or silent.
    Sick { of: Of, machine: Option<u8>, silent: bool, millis: u64 },
    /// A user wants a machine replaced.
    Remediate { of: Of, machine: u8 },
    /// A user has a machine left alone, or not any more.
    Skip { of: Of, machine: u8, on: bool },
}

impl Wish {
    /// A word for it if it is a fault; none for what users may do at any time.
    pub const fn fault(self) -> Option<&'static str> {
        match self {
            Self::Sick { machine: None, .. } => Some("all-sick"),
            Self::Sick { .. } => Some("sick-node"),
            Self::Keep { .. }
            | Self::Delete { .. }
            | Self::Remediate { .. }
            | Self::Skip { .. } => None,
        }
    }
}

/// Name of a check.
pub fn check_name(number: u8) -> String {
    format!("h{number}")
}
