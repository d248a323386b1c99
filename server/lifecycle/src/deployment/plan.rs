//! The decision of a pass.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::machine_deployment::MachineDeploymentStatus;
use ostler_api::{Machine, MachineSet};
use serde_json::Value;

use crate::plan::Event;

/// The writes of a pass, in the order in which they are done. Every patch is a merge patch, conditional on the version
/// that was seen.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Machines to mark or unmark for an autoscaler, and Machines to label.
    pub machines: Vec<(Arc<Machine>, Value)>,
    /// Writes to Nodes.
    pub nodes: Vec<NodeWrite>,
    /// Sets that change.
    pub sets: Vec<SetWrite>,
    /// The set for the template.
    pub create: Option<Box<MachineSet>>,
    /// Event for people once the set exists.
    pub created: Option<Event>,
    /// Sets that are not kept.
    pub delete: Vec<Arc<MachineSet>>,
    /// Patch of the deployment without its status.
    pub deployment: Option<Value>,
    /// The wanted status of the deployment.
    pub status: MachineDeploymentStatus,
    /// Events for people after all writes.
    pub events: Vec<Event>,
    /// When to look again although nothing has happened.
    pub next: Option<Timestamp>,
}

impl Decision {
    /// Whether these writes may change the next plan.
    pub fn changes_anything(&self) -> bool {
        let changes = !self.machines.is_empty() || !self.sets.is_empty() || !self.nodes.is_empty();
        changes || self.deployment.is_some()
    }

    /// Whether Machines may come, go or move because of these writes.
    pub fn concerns_machines(&self) -> bool {
        let Self { machines, sets, create, delete, .. } = self;
        !machines.is_empty() || !sets.is_empty() || create.is_some() || !delete.is_empty()
    }
}

/// A change of a set.
#[derive(Debug, Clone)]
pub struct SetWrite {
    /// The set as it was seen.
    pub set: Arc<MachineSet>,
    /// The merge patch.
    pub patch: Value,
    /// Event for people once the patch is written.
    pub event: Option<Event>,
}

/// A change of a Node.
#[derive(Debug, Clone)]
pub struct NodeWrite {
    /// The Machine of the Node.
    pub machine: Arc<Machine>,
    /// The Node as it was seen.
    pub node: Arc<Node>,
    /// The merge patch.
    pub patch: Value,
}
