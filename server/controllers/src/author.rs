//! The controllers that put the answers to their writes into a cache.

/// One of them, as the author of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Of Machines.
    Machine,
    /// Of MachineSets.
    Set,
    /// Of MachineDeployments.
    Deployment,
    /// Of MachinePools.
    Pool,
    /// Of MachineHealthChecks.
    HealthCheck,
    /// Of the freezes of MachineSets.
    FreezeOfSet,
    /// Of what MachineDeployments show of the freezes of their sets.
    FreezeOfDeployment,
    /// Of Nodes without a Machine.
    Node,
}

impl From<By> for &'static str {
    fn from(by: By) -> Self {
        match by {
            By::Machine => "Machine",
            By::Set => "MachineSet",
            By::Deployment => "MachineDeployment",
            By::Pool => "MachinePool",
            By::HealthCheck => "MachineHealthCheck",
            By::FreezeOfSet => "Freeze of a MachineSet",
            By::FreezeOfDeployment => "Freeze of a MachineDeployment",
            By::Node => "Node",
        }
    }
}
