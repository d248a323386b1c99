//! MachineDeployment: rolls MachineSets from one template to the next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    machine_set::{MachineSummary, MachineTemplateSpec},
    open_enum::open_enum,
};

/// What a MachineDeployment is to be. Autoscalers write these objects whole, and fields that they do not know vanish: those
/// that are ours, `bootstrap` and `version` of the template, the definition refuses to lose.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    singular = "machinedeployment",
    shortname = "mcd",
    namespaced,
    status = "MachineDeploymentStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    derive = "Default",
    doc = "Rolls Machines from one template to the next."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentSpec {
    /// How many Machines there are to be. Absent: filled in by the controller with 0, or with what is there where annotation
    /// `cluster-api-autoscaler-node-group-min-size` is 1 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selects the MachineSets of the deployment. The template has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The template of its Machines.
    #[serde(default)]
    pub template: MachineTemplateSpec,
    /// How Machines of an old template are replaced.
    #[serde(default)]
    pub strategy: MachineDeploymentStrategy,
    /// Stored, and not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many old MachineSets are kept; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// True: no rollout and no rollback; scaling goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The revision to go back to. Taken away once that is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<RollbackConfig>,
    /// How long a rollout may make no progress; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// How many Failed Machines are kept for examination although no user asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

impl MachineDeploymentSpec {
    /// How many Machines there are to be; an absent number counts as 0 until it is filled in.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_default()
    }
}

/// How Machines of an old template are replaced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentStrategy {
    /// `RollingUpdate`, `Recreate` or `InPlaceUpdate`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<StrategyType>,
    /// With `RollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
    /// With `InPlaceUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<InPlaceUpdate>,
}

/// How a rolling update goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many Machines may be missing meanwhile; a percentage is rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many there may be beyond `replicas`; a percentage is rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
}

/// How an update in place goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdate {
    /// How many Machines may be missing meanwhile; a percentage is rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many there may be beyond `replicas`; a percentage is rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// Who chooses the Nodes: `Auto` or `Manual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orchestration_type: Option<OrchestrationType>,
}

/// The revision to go back to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackConfig {
    /// 0: the previous revision.
    #[serde(default)]
    pub revision: i64,
}

/// What is known of a MachineDeployment. Numbers are written also when they are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// All its Machines, also Machines that are being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Those of the current template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Those with phase Running or, without Nodes, Available.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Those with phase Running or Available.
    #[serde(default)]
    pub available_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(default)]
    pub preserved_failed_replicas: i32,
    /// How many its MachineSets want and are not available.
    #[serde(default)]
    pub unavailable_replicas: i32,
    /// Its conditions; a healthy deployment has two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineDeploymentCondition>,
    /// How often the name of a new MachineSet was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Machines whose last operation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_machines: Option<Vec<MachineSummary>>,
    /// The selector as text, for the scale subresource. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// A condition of a MachineDeployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: MachineDeploymentConditionType,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was written last; the progress deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Since when the status holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

open_enum! {
    /// How Machines of an old template are replaced.
    pub enum StrategyType {
        /// A few at a time.
        RollingUpdate = "RollingUpdate",
        /// All are deleted before new ones are created.
        Recreate = "Recreate",
        /// The Nodes are updated, and the Machines stay.
        InPlaceUpdate = "InPlaceUpdate",
    }
}

open_enum! {
    /// The chooser of the Nodes to update in place.
    pub enum OrchestrationType {
        /// The controller.
        Auto = "Auto",
        /// A user.
        Manual = "Manual",
    }
}

open_enum! {
    /// The subject of a condition of a MachineDeployment.
    pub enum MachineDeploymentConditionType {
        /// Whether enough Machines are available.
        Available = "Available",
        /// Whether a rollout gets on.
        Progressing = "Progressing",
        /// A Machine could not be created or deleted.
        ReplicaFailure = "ReplicaFailure",
        /// The deployment has far too many Machines and creates none.
        Frozen = "Frozen",
        /// `False` while its spec is refused; absent otherwise. Ours.
        Valid = "Valid",
        /// `True` while half of its Machines or more are lost: one Machine is replaced, and the others wait. Absent
        /// otherwise. Ours.
        MassFailure = "MassFailure",
        /// `False` while an annotation of autoscalers says nothing that they can follow; absent otherwise. Ours.
        AutoscalerLimits = "AutoscalerLimits",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_as_upstream_writes_it_reads_and_comes_back_the_same() {
        let upstream = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineDeployment",
            "metadata": { "name": "d", "namespace": "default" },
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": { "name": "d" } },
                "template": {
                    "metadata": { "labels": { "name": "d" } },
                    "spec": { "class": { "kind": "MachineClass", "name": "c" } }
                },
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": { "maxSurge": "20%", "maxUnavailable": 1 }
                },
                "minReadySeconds": 500,
                "paused": true,
                "rollbackTo": { "revision": 0 }
            },
            "status": {
                "observedGeneration": 1, "replicas": 0, "updatedReplicas": 0, "readyReplicas": 0,
                "availableReplicas": 0, "preservedFailedReplicas": 0, "unavailableReplicas": 0,
                "conditions": [{
                    "type": "Progressing", "status": "True", "reason": "NewMachineSetAvailable",
                    "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
                    "lastUpdateTime": "2026-01-02T03:04:05Z"
                }],
                "collisionCount": 0
            }
        });
        let deployment: MachineDeployment = serde_json::from_value(upstream.clone()).unwrap();
        assert_eq!(serde_json::to_value(&deployment).unwrap(), upstream);
    }
}
