//! The errors inside of answers.

use crate::v1alpha1::operation_result::Response;
use crate::v1alpha1::{
    MachineRecord, OperationError, OperationPage, PoolMachineRecord, PoolRecord,
};

impl Response {
    /// What is wrong with the instances and groups of the answer, and why some were not deleted.
    pub fn faults_mut(&mut self) -> Vec<&mut OperationError> {
        match self {
            Self::CreateMachine(it) => of_machines(&mut it.machine).collect(),
            Self::InitializeMachine(it) => of_machines(&mut it.machine).collect(),
            Self::GetMachineStatus(it) => of_machines(&mut it.machine).collect(),
            Self::ListMachines(it) => of_machines(&mut it.machines).collect(),
            Self::CreatePool(it) => of_pools(&mut it.pool).collect(),
            Self::UpdatePool(it) => of_pools(&mut it.pool).collect(),
            Self::ListPools(it) => of_pools(&mut it.pools).collect(),
            Self::GetPoolStatus(it) => {
                of_pools(&mut it.pool).chain(of_instances(&mut it.machines)).collect()
            }
            Self::DeletePoolMachines(it) => {
                let kept = it.not_deleted.iter_mut().filter_map(|one| one.error.as_mut());
                of_pools(&mut it.pool).chain(kept).collect()
            }
            Self::UpdatePoolMachine(it) => of_instances(&mut it.machine).collect(),
            Self::UpdateMachine(_)
            | Self::DeleteMachine(_)
            | Self::DeletePool(_)
            | Self::GetVolumeIds(_)
            | Self::ValidateClass(_) => Vec::new(),
        }
    }
}

impl OperationPage {
    /// What is wrong with the instances and groups of the page.
    pub fn faults_mut(&mut self) -> Vec<&mut OperationError> {
        of_machines(&mut self.machines)
            .chain(of_pools(&mut self.pools))
            .chain(of_instances(&mut self.pool_machines))
            .collect()
    }
}

fn of_machines<'a>(
    machines: impl IntoIterator<Item = &'a mut MachineRecord>,
) -> impl Iterator<Item = &'a mut OperationError> {
    machines.into_iter().filter_map(|one| one.fault.as_deref_mut())
}

fn of_instances<'a>(
    instances: impl IntoIterator<Item = &'a mut PoolMachineRecord>,
) -> impl Iterator<Item = &'a mut OperationError> {
    of_machines(instances.into_iter().filter_map(|one| one.machine.as_mut()))
}

fn of_pools<'a>(
    pools: impl IntoIterator<Item = &'a mut PoolRecord>,
) -> impl Iterator<Item = &'a mut OperationError> {
    pools.into_iter().filter_map(|one| one.fault.as_deref_mut())
}
