//! The closed vocabulary that core and drivers share: result codes, certainty, operation kinds.
//!
//! The numbers are from the wire contract; the names are upstream's in `status.lastOperation.errorCode`, where other
//! programs read them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

crate::closed_enum! {
    /// Why an operation failed. Numbers 1 to 16 are gRPC's, 17 has no counterpart there.
    ///
    /// Success is not a code: an operation has either a result or an error.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(i32)]
    pub enum ErrorCode {
        /// The operation was cancelled.
        Canceled = 1,
        /// The driver cannot say what went wrong. Also stands for any number that is not known here.
        Unknown = 2,
        /// The request cannot work as it is, whatever the state of the infrastructure.
        InvalidArgument = 3,
        /// The time given was not enough.
        DeadlineExceeded = 4,
        /// No such instance.
        NotFound = 5,
        /// An instance that does not fit the request holds the name already.
        AlreadyExists = 6,
        /// The credentials are valid but may not do this.
        PermissionDenied = 7,
        /// Quota, capacity or rate limit.
        ResourceExhausted = 8,
        /// The infrastructure is not in the state that the request needs.
        FailedPrecondition = 9,
        /// Stopped by a concurrent change; try again.
        Aborted = 10,
        /// A value outside its range; from a status read: several instances for one machine.
        OutOfRange = 11,
        /// The driver has no such verb.
        Unimplemented = 12,
        /// A defect of the driver.
        Internal = 13,
        /// The infrastructure cannot be reached for now.
        Unavailable = 14,
        /// Something is lost for good.
        DataLoss = 15,
        /// The credentials are not valid.
        Unauthenticated = 16,
        /// The instance exists but its initialization has not finished.
        Uninitialized = 17,
    }
}

impl ErrorCode {
    /// Reads a name. `Initialization`, the name of the first proposal, is read as `Uninitialized`.
    /// `None` for a name that is not ours.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "Initialization" {
            return Some(Self::Uninitialized);
        }
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The number on the wire.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Reads a number from the wire. Zero and every number that is not ours is `Unknown`.
    pub fn from_number(number: i32) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(Self::Unknown)
    }
}

crate::closed_enum! {
    /// The certainty about the effects of a failed mutation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(i32)]
    pub enum Certainty {
        /// Nothing changed.
        NotApplied = 1,
        /// Something changed; the same request again finishes it.
        Partial = 2,
        /// Unknown: read first, then decide. Also what an unset value means.
        Unknown = 3,
    }
}

impl Certainty {
    /// The number on the wire.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Reads a number from the wire. Zero and every number that is not ours is `Unknown`.
    pub const fn from_number(number: i32) -> Self {
        match number {
            1 => Self::NotApplied,
            2 => Self::Partial,
            _ => Self::Unknown,
        }
    }
}

crate::closed_enum! {
    /// A verb of the driver contract. The numbers are the numbers of the request's arms.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[repr(i32)]
    pub enum OperationKind {
        /// Make the instance of a machine.
        CreateMachine = 20,
        /// Finish the one-time work after the instance exists.
        InitializeMachine = 21,
        /// Bring a running instance to the current spec of its class.
        UpdateMachine = 22,
        /// Make the instance and everything made for it go away.
        DeleteMachine = 23,
        /// Read one instance.
        GetMachineStatus = 24,
        /// Read all instances of a class.
        ListMachines = 25,
        /// Name the volumes behind persistent volumes.
        GetVolumeIds = 26,
        /// Check a provider spec, or a change of the spec.
        ValidateClass = 27,
        /// Make the group of a pool.
        CreatePool = 30,
        /// Change the size or the model of a group.
        UpdatePool = 31,
        /// Make a group with its instances go away.
        DeletePool = 32,
        /// Read a group and its instances.
        GetPoolStatus = 33,
        /// Read all groups of a class.
        ListPools = 34,
        /// Delete named instances of a group.
        DeletePoolMachines = 35,
        /// Bring one instance of a group to its model, in place.
        UpdatePoolMachine = 36,
    }
}

impl OperationKind {
    /// Reads a name; `None` for a name that is not ours.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The number on the wire.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Reads a number from the wire; `None` for zero and every number that is not ours.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Whether the verb changes the infrastructure. At most one mutation is in flight per target, recorded in the
    /// status of the object before it is sent.
    pub const fn is_mutation(self) -> bool {
        match self {
            Self::CreateMachine
            | Self::InitializeMachine
            | Self::UpdateMachine
            | Self::DeleteMachine
            | Self::CreatePool
            | Self::UpdatePool
            | Self::DeletePool
            | Self::DeletePoolMachines
            | Self::UpdatePoolMachine => true,
            Self::GetMachineStatus
            | Self::ListMachines
            | Self::GetVolumeIds
            | Self::ValidateClass
            | Self::GetPoolStatus
            | Self::ListPools => false,
        }
    }

    /// Whether it is about a group: its target is a MachinePool, or for [`Self::ListPools`] a class.
    pub const fn is_of_pools(self) -> bool {
        self as i32 >= Self::CreatePool as i32
    }

    /// Whether the verb may make instances, and so waits while the infrastructure throttles.
    pub const fn makes_instances(self) -> bool {
        matches!(self, Self::CreateMachine | Self::CreatePool | Self::UpdatePool)
    }

    /// Whether its answer may come in pages.
    pub const fn is_paged(self) -> bool {
        matches!(self, Self::ListMachines | Self::GetPoolStatus | Self::ListPools)
    }

    /// How long a driver may take for it, as the contract says.
    pub const fn usual_time(self) -> Duration {
        match self {
            Self::DeletePool => Duration::from_mins(30),
            Self::CreateMachine
            | Self::DeleteMachine
            | Self::CreatePool
            | Self::UpdatePoolMachine => Duration::from_mins(20),
            Self::UpdateMachine | Self::UpdatePool | Self::DeletePoolMachines => {
                Duration::from_mins(10)
            }
            Self::InitializeMachine
            | Self::ListMachines
            | Self::GetPoolStatus
            | Self::ListPools => Duration::from_mins(5),
            Self::GetMachineStatus | Self::GetVolumeIds => Duration::from_mins(1),
            Self::ValidateClass => Duration::from_secs(15),
        }
    }

    /// One to three letters that name the verb in an idempotency key.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::CreateMachine => "c",
            Self::InitializeMachine => "i",
            Self::UpdateMachine => "u",
            Self::DeleteMachine => "d",
            Self::GetMachineStatus => "s",
            Self::ListMachines => "l",
            Self::GetVolumeIds => "v",
            Self::ValidateClass => "k",
            Self::CreatePool => "pc",
            Self::UpdatePool => "pu",
            Self::DeletePool => "pd",
            Self::GetPoolStatus => "ps",
            Self::ListPools => "pl",
            Self::DeletePoolMachines => "pdm",
            Self::UpdatePoolMachine => "pum",
        }
    }

    /// The idempotency key of this verb on the object with this UID; for an update, the key's beginning.
    pub fn key_of(self, uid: &str) -> String {
        format!("{uid}:{}", self.letter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_its_name_and_its_number() {
        for (index, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(code.number(), i32::try_from(index).unwrap() + 1);
            assert_eq!(ErrorCode::from_number(code.number()), code);
            assert_eq!(ErrorCode::from_name(code.name()), Some(code));
        }
    }

    #[test]
    fn a_number_that_is_not_ours_reads_as_unknown() {
        assert_eq!(ErrorCode::from_number(0), ErrorCode::Unknown);
        assert_eq!(ErrorCode::from_number(99), ErrorCode::Unknown);
        assert_eq!(Certainty::from_number(0), Certainty::Unknown);
        assert_eq!(Certainty::from_number(9), Certainty::Unknown);
        assert_eq!(OperationKind::from_number(0), None);
    }

    #[test]
    fn the_name_of_the_first_proposal_reads_as_uninitialized() {
        assert_eq!(ErrorCode::from_name("Initialization"), Some(ErrorCode::Uninitialized));
        assert_eq!(ErrorCode::from_name("initialization"), None);
    }

    #[test]
    fn every_kind_survives_its_name_and_its_number() {
        for kind in OperationKind::ALL {
            assert_eq!(OperationKind::from_number(kind.number()), Some(kind));
            assert_eq!(OperationKind::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn only_the_verbs_that_change_something_are_mutations() {
        let mutations: Vec<_> =
            OperationKind::ALL.into_iter().filter(|kind| kind.is_mutation()).collect();
        assert_eq!(
            mutations,
            [
                OperationKind::CreateMachine,
                OperationKind::InitializeMachine,
                OperationKind::UpdateMachine,
                OperationKind::DeleteMachine,
                OperationKind::CreatePool,
                OperationKind::UpdatePool,
                OperationKind::DeletePool,
                OperationKind::DeletePoolMachines,
                OperationKind::UpdatePoolMachine,
            ]
        );
    }
}
