//! MachineSet: keeps a number of Machines of the same template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    machine::{ClassRef, LastOperation, MachineSpec, Retry},
    open_enum::open_enum,
};

/// What a MachineSet is to be. Nothing of ours may be added: autoscalers write these objects whole, and fields that
/// they do not know vanish.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineSet",
    plural = "machinesets",
    singular = "machineset",
    shortname = "mcs",
    namespaced,
    status = "MachineSetStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    derive = "Default",
    doc = "Keeps a number of Machines of one template."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetSpec {
    /// How many Machines there are to be. Absent: filled in by the controller with 0, or with what is there where annotation
    /// `cluster-api-autoscaler-node-group-min-size` is 1 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selects the Machines of the set. The template has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// For old objects; never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_class: Option<ClassRef>,
    /// The template of its Machines.
    #[serde(default)]
    pub template: MachineTemplateSpec,
    /// Stored, and not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many Failed Machines are kept for examination although no user asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

impl MachineSetSpec {
    /// How many Machines there are to be; an absent number counts as 0 until it is filled in.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_default()
    }
}

/// What Machines are made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplateSpec {
    /// Labels, annotations and finalizers of the Machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::template_metadata")]
    pub metadata: Option<ObjectMeta>,
    /// Their spec.
    #[serde(default)]
    pub spec: MachineSpec,
}

/// What is known of a MachineSet. Numbers are written also when they are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetStatus {
    /// All its Machines, also Machines that are being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Those with every label of the template.
    #[serde(default)]
    pub fully_labeled_replicas: i32,
    /// Those with phase Running or, without Nodes, Available.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Those with phase Running or Available.
    #[serde(default)]
    pub available_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(default)]
    pub preserved_failed_replicas: i32,
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its conditions; the name is upstream's.
    #[serde(rename = "machineSetCondition", default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineSetCondition>,
    /// Only its time is ever set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Machines whose last operation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_machines: Option<Vec<MachineSummary>>,
    /// Machines that the set itself keeps for examination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_count: Option<i32>,
    /// How often in a row its Machines failed before they had run for ten minutes, and when those that are Failed are
    /// replaced. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_retry: Option<Retry>,
    /// The template of which its Machines get copies, as it was last seen. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_template: Option<SeenTemplate>,
    /// The selector as text, for the scale subresource. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// A template of a bootstrap provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenTemplate {
    /// Its name.
    pub name: String,
    /// The generation of the template object; another generation means a change in place.
    pub generation: i64,
}

/// A condition of a MachineSet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: MachineSetConditionType,
    /// `True`, `False` or `Unknown`.
    pub status: String,
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

/// A Machine whose last operation failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSummary {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its instance.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Name of its MachineSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_ref: Option<String>,
}

open_enum! {
    /// The subject of a condition of a MachineSet.
    pub enum MachineSetConditionType {
        /// A Machine could not be created or deleted.
        ReplicaFailure = "ReplicaFailure",
        /// The set has far too many Machines and creates none.
        Frozen = "Frozen",
        /// `False` while its spec is refused, or an annotation of autoscalers says nothing that they can follow; absent
        /// otherwise. Ours.
        Valid = "Valid",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_as_upstream_writes_it_reads_and_comes_back_the_same() {
        let upstream = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineSet",
            "metadata": { "name": "s", "namespace": "default" },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "machine-template-hash": "1", "name": "d" } },
                "machineClass": { "kind": "", "name": "" },
                "template": {
                    "metadata": { "labels": { "machine-template-hash": "1", "name": "d" } },
                    "spec": { "class": { "kind": "MachineClass", "name": "c" } }
                },
                "minReadySeconds": 500
            },
            "status": {
                "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 0,
                "availableReplicas": 0, "preservedFailedReplicas": 0, "observedGeneration": 2,
                "machineSetCondition": [{
                    "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount",
                    "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"
                }],
                "failedMachines": [{ "name": "m", "providerID": "p", "ownerRef": "s" }]
            }
        });
        let set: MachineSet = serde_json::from_value(upstream.clone()).unwrap();
        assert_eq!(serde_json::to_value(&set).unwrap(), upstream);
    }

    #[test]
    fn a_set_that_upstream_wrote_with_no_replicas_has_none() {
        let set: MachineSet = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s" }, "spec": {}
        }))
        .unwrap();
        assert_eq!((set.spec.replicas, set.spec.replicas(), set.spec.selector), (None, 0, None));
    }
}
