//! The work for a Machine: the steps of its life, and the verbs of its driver.

use crate::open_enum::open_enum;

open_enum! {
    /// The current step of a Machine.
    pub enum MachineStep {
        /// Look the instance up, and make it if there is none.
        CreateInstance = "CreateInstance",
        /// Finish the one-time work after the instance exists.
        InitializeInstance = "InitializeInstance",
        /// Wait until the Node is there and healthy.
        JoinNode = "JoinNode",
        /// Bring the running instance to the current spec of its class.
        UpdateInstance = "UpdateInstance",
        /// Another controller updates the Node in place.
        UpdateNode = "UpdateNode",
        /// Deletion: find the instance and the Node.
        FindInstance = "FindInstance",
        /// Deletion: a pre-drain hook holds it.
        PreDrainHook = "PreDrainHook",
        /// Deletion, or before an update in place: no new pods on the Node.
        CordonNode = "CordonNode",
        /// Deletion, preservation, or before an update in place: the pods leave.
        DrainNode = "DrainNode",
        /// The same: the volumes leave.
        DetachVolumes = "DetachVolumes",
        /// Deletion: a pre-terminate hook holds it.
        PreTerminateHook = "PreTerminateHook",
        /// Deletion: the instance goes.
        DeleteInstance = "DeleteInstance",
        /// Deletion: the Node goes.
        DeleteNode = "DeleteNode",
        /// Deletion: the Machine itself goes.
        RemoveFinalizer = "RemoveFinalizer",
    }
}

open_enum! {
    /// A verb of the driver contract, as it stands in a status.
    pub enum OperationVerb {
        /// Make the instance.
        CreateMachine = "CreateMachine",
        /// Initialize the instance.
        InitializeMachine = "InitializeMachine",
        /// Change the running instance.
        UpdateMachine = "UpdateMachine",
        /// Make the instance go away.
        DeleteMachine = "DeleteMachine",
        /// Read the instance.
        GetMachineStatus = "GetMachineStatus",
        /// Read all instances of a class.
        ListMachines = "ListMachines",
        /// Name volumes.
        GetVolumeIds = "GetVolumeIds",
        /// Check a provider spec.
        ValidateClass = "ValidateClass",
        /// Make the group of a pool.
        CreatePool = "CreatePool",
        /// Change the size or the model of a group.
        UpdatePool = "UpdatePool",
        /// Make a group go away.
        DeletePool = "DeletePool",
        /// Read a group and its instances.
        GetPoolStatus = "GetPoolStatus",
        /// Read all groups of a class.
        ListPools = "ListPools",
        /// Delete named instances of a group.
        DeletePoolMachines = "DeletePoolMachines",
        /// Bring an instance of a group to the group's model.
        UpdatePoolMachine = "UpdatePoolMachine",
    }
}

impl MachineStep {
    /// The later steps, if all goes well. Nothing follows a step of another writer.
    pub const fn following(&self) -> &'static [Self] {
        const CREATION: [MachineStep; 2] = [MachineStep::InitializeInstance, MachineStep::JoinNode];
        const DELETION: [MachineStep; 6] = [
            MachineStep::CordonNode,
            MachineStep::DrainNode,
            MachineStep::DetachVolumes,
            MachineStep::DeleteInstance,
            MachineStep::DeleteNode,
            MachineStep::RemoveFinalizer,
        ];
        match self {
            Self::CreateInstance => &CREATION,
            Self::InitializeInstance => CREATION.split_at(1).1,
            Self::FindInstance | Self::PreDrainHook => &DELETION,
            Self::CordonNode => DELETION.split_at(1).1,
            Self::DrainNode => DELETION.split_at(2).1,
            Self::DetachVolumes | Self::PreTerminateHook => DELETION.split_at(3).1,
            Self::DeleteInstance => DELETION.split_at(4).1,
            Self::DeleteNode => DELETION.split_at(5).1,
            Self::JoinNode
            | Self::UpdateInstance
            | Self::UpdateNode
            | Self::RemoveFinalizer
            | Self::Other(_) => &[],
        }
    }
}
