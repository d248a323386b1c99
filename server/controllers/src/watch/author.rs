//! Whose write a change is.

use kube::Resource;

use super::ObjectName;

/// The controllers that put the answers to their writes into a cache.
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

/// Who wrote an object: a controller of this process, in a pass over one of its objects. That pass knows of the write;
/// every other one has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Author {
    by: By,
    object: ObjectName,
}

impl Author {
    /// A pass of `by` over `object`.
    pub(crate) fn new<K: Resource>(by: By, object: &K) -> Self {
        Self { by, object: ObjectName::of(object) }
    }

    /// Whether it is the pass of `by` over the object of that name.
    pub(super) fn is(&self, by: By, object: &ObjectName) -> bool {
        self.by == by && self.object == *object
    }
}
