//! The progress of a Node's drain, in the status of its Machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// How far a drain is, and what for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainProgress {
    /// What for; absent: for the deletion of the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<DrainPurpose>,
    /// True: this drain made the Node unschedulable. It was not before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Where the instance has several Nodes, names of those that this drain made unschedulable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cordoned_nodes: Vec<String>,
    /// When the first pass began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// From when the drain timeout counts, if not from the deletion: pre-drain hooks held it until
    /// then; or the failure of a preserved Machine, or when its Node was selected for an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_from: Option<Time>,
    /// When force is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Pods that still have to go.
    #[serde(default)]
    pub pods_left: i32,
    /// Pods of `remaining` that are terminating.
    #[serde(default)]
    pub terminating: i32,
    /// Of the terminating ones, those whose grace is over for more than 30 s: look at the kubelet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: i32,
    /// Pods of `remaining` whose eviction PodDisruptionBudgets refused.
    #[serde(default)]
    pub blocked: i32,
    /// Of the blocked ones, those with a budget that never allows an eviction.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub misconfigured: i32,
    /// Blocked pods that more than one budget selects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub several_budgets: i32,
    /// Of these, pods whose eviction failed for another reason.
    #[serde(default)]
    pub failing: i32,
    /// Of these, pods with volumes whose turn has not come.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queued: i32,
    /// `namespace/name` of the first pods that are blocked or failing, at most three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// `namespace/name` of the first PodDisruptionBudgets that refuse, at most three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<String>,
    /// Persistent volumes of the pods that leave. Followed until they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<DrainVolume>,
    /// True once force was used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// True once no pod was left, or force was used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

impl DrainProgress {
    /// The purpose of the drain.
    pub fn purpose(&self) -> DrainPurpose {
        self.purpose.clone().unwrap_or(DrainPurpose::Deletion)
    }

    /// The same drain, with its counts reset.
    #[must_use]
    pub fn renewed(&mut self) -> Self {
        Self {
            purpose: self.purpose.take(),
            cordoned: self.cordoned,
            cordoned_nodes: std::mem::take(&mut self.cordoned_nodes),
            started_at: self.started_at.take(),
            counts_from: self.counts_from.take(),
            deadline: self.deadline.take(),
            volumes: std::mem::take(&mut self.volumes),
            ..Self::default()
        }
    }
}

open_enum! {
    /// The purpose of a Node's drain.
    pub enum DrainPurpose {
        /// The Machine is being deleted.
        Deletion = "Deletion",
        /// The Machine is Failed, and kept for examination.
        Preservation = "Preservation",
        /// The Node is to be updated in place.
        InPlaceUpdate = "InPlaceUpdate",
    }
}

/// A persistent volume of a pod that has to leave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainVolume {
    /// Name of the PersistentVolume.
    pub name: String,
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Priority of the pod; volumes of pods with lower priority wait for this volume.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// By what the infrastructure knows it: the answer of the driver, or else the CSI volume
    /// handle. Empty: by nothing. Absent: the driver was not asked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Whether it was seen attached to the Node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// Since when no pod on the Node uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// Since when it is not attached to the Node any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached_at: Option<Time>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

open_enum! {
    /// Why a Machine is being deleted. Stands as the reason of the condition `Terminating` on its
    /// Node; the words are machine-controller-manager's.
    pub enum DeletionCause {
        /// The Machine was Failed.
        Unhealthy = "Unhealthy",
        /// The Machine was surplus.
        ScaleDown = "ScaleDown",
    }
}

impl DeletionCause {
    /// The message of the condition on the Node.
    pub fn message(&self) -> &'static str {
        match self {
            Self::Unhealthy => "Machine Controller is terminating failed machine",
            Self::ScaleDown | Self::Other(_) => "Machine Controller is scaling down machine",
        }
    }
}
