//! Sets and deployments of a life: wishes of users, rules for the cores that run them, and their final states.

pub mod agents;
pub mod plans;
pub mod rules;
pub mod settled;
pub mod users;

use serde::{Deserialize, Serialize};

/// An object that users care for as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Group {
    /// A MachineDeployment.
    Fleet(u8),
    /// A MachineSet of nobody.
    Set(u8),
}

impl Group {
    /// The name of the group, which is also the label value of its machines.
    pub fn name(self) -> String {
        match self {
            Self::Fleet(number) => format!("f{number}"),
            Self::Set(number) => format!("s{number}"),
        }
    }
}

/// How a deployment replaces its machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rollout {
    /// RollingUpdate with so many beyond the replicas, and so many missing.
    Rolling(u8, u8),
    /// Recreate.
    Recreate,
    /// InPlaceUpdate with so many beyond the replicas, and so many missing; a user chooses the Nodes, or the core.
    InPlace(u8, u8, bool),
}

/// A wish about sets and deployments. Machines from [`MEMBERS`] on.
#[expect(missing_docs, reason = "each variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// A user makes a set or a deployment of so many machines of a class.
    Keep { group: Group, replicas: u8, class: u8, rollout: Rollout },
    /// A user wants another number of machines.
    Scale { group: Group, replicas: u8 },
    /// A user gives a deployment another template.
    Roll { fleet: u8, class: u8, version: u8 },
    /// A user wants the template before that.
    RollBack { fleet: u8 },
    /// A user holds the rollout of a deployment, or lets it go on.
    Hold { fleet: u8, on: bool },
    /// A user deletes a set or a deployment, with what it has or with `--cascade=orphan`.
    Delete {
        group: Group,
        #[serde(default)]
        orphan: bool,
    },
    /// A user chooses the Node of a machine for an update in place.
    Select { fleet: u8, machine: u8 },
    /// An autoscaler chooses a machine of a deployment, and then lowers its number.
    Mark { fleet: u8, machine: u8 },
    /// A user removes the label that a set selects from a machine, or puts the label back on a released machine.
    Relabel { machine: u8, on: bool },
    /// A client with machine-controller-manager's types writes a set or a deployment back.
    TypedPut { group: Group },
}

impl Wish {
    /// A word for it if it is a fault; none for what users may do at any time.
    pub const fn fault(self) -> Option<&'static str> {
        match self {
            Self::Relabel { .. } => Some("relabel"),
            Self::TypedPut { .. } => Some("typed-put-group"),
            Self::Keep { .. }
            | Self::Scale { .. }
            | Self::Roll { .. }
            | Self::RollBack { .. }
            | Self::Hold { .. }
            | Self::Delete { .. }
            | Self::Select { .. }
            | Self::Mark { .. } => None,
        }
    }
}

/// From this number on, deployments are updated in place.
pub const IN_PLACE: u8 = 10;

/// From this number on, the number of a machine in a plan counts those that are in a set, by name.
pub const MEMBERS: u8 = 100;
