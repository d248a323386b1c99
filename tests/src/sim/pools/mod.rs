//! MachinePools of a life: what users do with them and what the cloud does to their instances, what is asked of cores and
//! drivers, and where they have to end.

pub mod collected;
pub mod members;
pub mod orphans;
pub mod others;
pub mod plans;
pub mod rules;
pub mod settled;
pub mod users;

use serde::{Deserialize, Serialize};

/// A wish about pools. Machines are counted within the pool.
#[expect(missing_docs, reason = "each variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// A user makes a pool of so many machines of a class, with this surge, and so many that may be missing.
    Keep { pool: u8, replicas: u8, class: u8, surge: u8, missing: u8 },
    /// A user wants another number of machines.
    Scale { pool: u8, replicas: u8 },
    /// A user wants another version on all of them.
    Roll { pool: u8, version: u8 },
    /// A user deletes a machine.
    Machine { pool: u8, machine: u8 },
    /// The cloud takes an instance away, as it does with those at spot price.
    Lose { pool: u8, machine: u8 },
    /// Pods are bound to the Node of a machine.
    Pods { pool: u8, machine: u8, round: u8 },
    /// A user deletes a pool.
    Delete { pool: u8 },
    /// A user makes a pool whose instances are updated in place, so many at a time; what failed is replaced, or not.
    KeepInPlace { pool: u8, replicas: u8, class: u8, missing: u8, replace: bool },
    /// A user has one instance updated in place, or takes that back.
    Update { pool: u8, machine: u8, on: bool },
    /// A user gives a class other tags, which running instances take, and another image, which they do not.
    Edit { class: u8, tags: u8, image: u8 },
    /// A user deletes a pool and takes its finalizer away: its group is an orphan from then on.
    Tear { pool: u8 },
    /// A user makes a pool whose group another system scales.
    KeepScaled { pool: u8, replicas: u8, class: u8 },
    /// The other system wants another number of instances.
    Resize { pool: u8, size: u8 },
    /// A group is there with the tags of this cluster, of a pool with this name that never was.
    Stray { pool: u8 },
}

impl Wish {
    /// A word for it if it is a fault; none for what users may do at any time.
    pub const fn fault(self) -> Option<&'static str> {
        match self {
            Self::Lose { .. } => Some("spot-loss"),
            Self::Tear { .. } => Some("tear-pool"),
            Self::Stray { .. } => Some("stray-group"),
            Self::Resize { .. } => Some("scaled-by-others"),
            Self::Keep { .. }
            | Self::Scale { .. }
            | Self::Roll { .. }
            | Self::Machine { .. }
            | Self::Pods { .. }
            | Self::Delete { .. }
            | Self::KeepInPlace { .. }
            | Self::KeepScaled { .. }
            | Self::Update { .. }
            | Self::Edit { .. } => None,
        }
    }

    /// The pool that the wish makes.
    pub const fn kept(self) -> Option<u8> {
        if let Self::Keep { pool, .. }
        | Self::KeepInPlace { pool, .. }
        | Self::KeepScaled { pool, .. } = self
        {
            Some(pool)
        } else {
            None
        }
    }

    /// Whether a group may be of no pool after it.
    pub const fn orphans(self) -> bool {
        matches!(self, Self::Tear { .. } | Self::Stray { .. })
    }
}

/// The cluster of the groups and instances that are none of our business.
pub const ELSEWHERE: &str = "another cluster";

/// Name of a pool.
pub fn pool_name(number: u8) -> String {
    format!("p{number}")
}
