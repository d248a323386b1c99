//! Groups of instances, in the terms of their operations.

use crate::ProviderId;
use crate::Uid;

use super::{Failure, InstanceRecord, UserData};

/// The model of a group's instances, beside the class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolModel {
    /// Names all that an instance is made from, class included; at most 64 printable ASCII characters.
    pub hash: String,
    /// User data of the instances that are made from now on; `None`: the class has none.
    pub user_data: Option<UserData>,
    /// Where instances may be made; empty: where the class says.
    pub zones: Vec<String>,
}

/// The wanted size of a group, and the size at the last read: a group with another size is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSize {
    /// The size at the last read.
    pub expected: i32,
    /// The wanted size, absolute: a repeated request changes nothing twice.
    pub wanted: i32,
}

/// The groups' own behaviour under a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTraits {
    /// The groups replace outdated instances.
    pub surge: bool,
    /// The groups may delete instances that the core did not name.
    pub scales_in: bool,
}

/// A group as the infrastructure knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolRecord {
    /// Its id.
    pub provider_id: ProviderId,
    /// Name of the MachinePool in the tags; empty if none.
    pub pool_name: String,
    /// UID of the MachinePool in the tags; empty if none.
    pub pool_uid: Uid,
    /// The current or a previous id of this cluster in the tags; may be empty.
    pub cluster_id: String,
    /// How many instances it is to have.
    pub desired: i32,
    /// The current number of instances.
    pub current: i32,
    /// [`PoolModel::hash`] of new instances; empty: not known.
    pub model_hash: String,
    /// Whether it makes, deletes or updates instances right now.
    pub busy: bool,
    /// Set when the infrastructure reports the group as broken, or makes no instances for it.
    pub fault: Option<Box<Failure>>,
}

/// An instance of a group as the infrastructure knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolInstance {
    /// The instance; it names no Machine.
    pub instance: InstanceRecord,
    /// Distinguishes the instance within its group; part of the Machine's name.
    pub instance_id: String,
    /// How the infrastructure calls it; may be empty.
    pub instance_name: String,
    /// The state of the instance.
    pub state: PoolInstanceState,
    /// [`PoolModel::hash`] that it was made from or updated to; empty: not known.
    pub model_hash: String,
    /// Where it is; may be empty.
    pub zone: String,
}

crate::closed_enum! {
    /// The stage of an instance of a group.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    #[repr(i32)]
    pub enum PoolInstanceState {
        /// The driver does not say; it counts as not ready.
        #[default]
        Unknown = 0,
        /// Being made.
        Creating = 1,
        /// Being changed.
        Updating = 2,
        /// Being deleted.
        Deleting = 3,
        /// As it is to be.
        Succeeded = 4,
        /// The last change of the instance failed.
        Failed = 5,
        /// The last change of the instance was stopped.
        Canceled = 6,
    }
}

impl PoolInstanceState {
    /// Reads a number from the wire. Every number that is not ours is `Unknown`.
    pub fn from_number(number: i32) -> Self {
        Self::ALL.into_iter().find(|state| *state as i32 == number).unwrap_or(Self::Unknown)
    }
}
