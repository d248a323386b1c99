//! Which operations change something.

use crate::v1alpha1::{Operation, operation::Request};

impl Request {
    /// Whether it may change something in the infrastructure.
    pub const fn is_mutation(&self) -> bool {
        match self {
            Self::CreateMachine(_)
            | Self::InitializeMachine(_)
            | Self::UpdateMachine(_)
            | Self::DeleteMachine(_)
            | Self::CreatePool(_)
            | Self::UpdatePool(_)
            | Self::DeletePool(_)
            | Self::DeletePoolMachines(_)
            | Self::UpdatePoolMachine(_) => true,
            Self::GetMachineStatus(_)
            | Self::ListMachines(_)
            | Self::GetVolumeIds(_)
            | Self::ValidateClass(_)
            | Self::GetPoolStatus(_)
            | Self::ListPools(_) => false,
        }
    }
}

impl Operation {
    /// Whether it may change something in the infrastructure. An operation without a request changes nothing.
    pub fn is_mutation(&self) -> bool {
        self.request.as_ref().is_some_and(Request::is_mutation)
    }
}
