//! MachinePool: a scaling group of the infrastructure, each instance of which is a Machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ProviderId, Revision, SpecDigest,
    bootstrap::BootstrapConfigRef,
    machine::{OperationIntent, Retry},
    machine_set::{MachineTemplateSpec, SeenTemplate},
    names::annotation,
    open_enum::open_enum,
};

/// What a MachinePool is to be.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ostler.dev",
    version = "v1alpha1",
    kind = "MachinePool",
    plural = "machinepools",
    singular = "machinepool",
    shortname = "mp",
    category = "all",
    namespaced,
    status = "MachinePoolStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    derive = "Default",
    doc = "A scaling group of the infrastructure, each instance of which is a Machine."
)]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolSpec {
    /// The target cluster that the Nodes join; absent: the only target cluster. Never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// How many instances there are to be. Absent: filled in by the controller, with the minimum of the autoscaler's
    /// annotations, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What its instances and Machines are made from. The class is that of the group.
    #[serde(default)]
    pub template: MachineTemplateSpec,
    /// How instances of an old template are replaced.
    #[serde(default)]
    pub strategy: PoolStrategy,
    /// Zones that the group spreads its instances over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<String>,
    /// True: nothing is replaced, and the group keeps its model; scaling goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// How instances of an old template are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStrategy {
    /// `RollingUpdate`, the default, `InPlaceUpdate` or `OnDelete`. With any value, changes that a running instance can
    /// take reach it in place.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<PoolStrategyType>,
    /// The limits of a rolling update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<PoolRollingUpdate>,
    /// The limits of updates in place, those that a user asks for with annotation `ostler.dev/update-instance` among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<PoolInPlaceUpdate>,
}

/// How a rolling update of a pool goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRollingUpdate {
    /// How many instances there may be beyond `replicas`; a percentage is rounded up. 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// How many may be missing meanwhile; a percentage is rounded down. 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Which of equal Machines goes first: `Oldest`, the default, `Newest` or `Random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_policy: Option<PoolDeletePolicy>,
}

/// How instances of a pool are updated in place: drained, changed by the driver, and used again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolInPlaceUpdate {
    /// How many of `replicas` may be missing for it; a percentage is rounded down. 1 if absent, and never 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// What becomes of an instance whose update failed: `Hold`, the default, or `Replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_update_failure: Option<PoolUpdateFailurePolicy>,
}

/// What is known of a MachinePool. There is no list of instances in it: each is a Machine. Numbers are written also when
/// they are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// All its Machines, also Machines that are being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Those with phase Running or, without Nodes, those with phase Available whose instance is Succeeded or Unknown.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The same as `readyReplicas`: there is no minimum time of readiness.
    #[serde(default)]
    pub available_replicas: i32,
    /// Machines whose instance has the current model.
    #[serde(default)]
    pub up_to_date_replicas: i32,
    /// How many are missing of `spec.replicas`.
    #[serde(default)]
    pub unavailable_replicas: i32,
    /// The selector of its Machines as text, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// For people; nothing decides by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PoolPhase>,
    /// Whether the data are there that instances become Nodes with.
    #[serde(default)]
    pub bootstrap_ready: bool,
    /// Whether the group exists and every instance is there that it is to have.
    #[serde(default)]
    pub infrastructure_ready: bool,
    /// `Machine` once the driver has said that each instance can be deleted alone; absent: Machines are for show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_machine_kind: Option<String>,
    /// The group, once there is one.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// As `creationUnconfirmedSince` of a Machine: of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_unconfirmed_since: Option<Time>,
    /// Provider of the class or, once there is a group, the one that has it. Nothing is asked of another about the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Digest of everything in template and class that only a new instance has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_hash: Option<SpecDigest>,
    /// Shortened digest of the user data that the group makes instances with; absent: not known. Others than these are
    /// sent to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data_hash: Option<SpecDigest>,
    /// The copies of templates that were made for it, each written before it is made: that of the template that it names now,
    /// and others until they are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bootstrap_configs: Vec<PoolBootstrapConfig>,
    /// The operation that was or is about to be sent to a driver. Written before it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<PoolIntent>,
    /// Whether a driver was ever asked for anything that lasts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// Verbs that failed last, and until when the next attempt of each waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<Retry>,
    /// How often in a row its Machines failed before they had run for ten minutes, and when those that are Failed are
    /// replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_retry: Option<Retry>,
    /// How often in a row its group was gone and made again, and until when the next time waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_retry: Option<Retry>,
    /// Instances that named deletions could not delete so far, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_deleted: Vec<ProviderId>,
    /// What the driver said of updates of running instances, and which of them are not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_update: Option<PoolHotUpdate>,
    /// When the group was last read, and what it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedGroup>,
    /// Why the pool failed; only a user can help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The same, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Versions of its Nodes, and how many have each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionCount>,
    /// Its conditions, see [`PoolConditionType`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The copy of a template of a bootstrap provider that a pool has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolBootstrapConfig {
    /// The copy.
    #[serde(flatten)]
    pub copy: BootstrapConfigRef,
    /// The template at the last look.
    pub template: SeenTemplate,
    /// The Secret that it names for the user data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// The write-ahead intent of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolIntent {
    /// What every intent has.
    #[serde(flatten)]
    pub intent: OperationIntent,
    /// The size that the group had when it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_size: Option<i32>,
    /// The size that it makes, absolute: made twice, it lowers nothing twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_size: Option<i32>,
    /// The model that it puts on the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_hash: Option<SpecDigest>,
    /// Shortened digest of the user data that it puts on the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data_hash: Option<SpecDigest>,
    /// The instances to delete, or the instance to update.
    #[serde(rename = "providerIDs", default, skip_serializing_if = "Vec::is_empty")]
    pub provider_ids: Vec<ProviderId>,
    /// Whether the Node of the instance that it updates is drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Digest of secret, user data and model, and after a dash `replicas`: a refusal counts for these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Revision>,
}

/// How changes reach running instances of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolHotUpdate {
    /// The model that the refusals are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_hash: Option<SpecDigest>,
    /// The driver that refused. Another one is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Models from which the driver cannot bring a running instance to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<SpecDigest>,
    /// Why not, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Instances that may have a part of another model than they report. They are updated even if they report the
    /// current model.
    #[serde(rename = "unfinishedProviderIDs", default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<ProviderId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// What the infrastructure said of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedGroup {
    /// How many instances it is to have.
    #[serde(default)]
    pub desired: i32,
    /// How many it has.
    #[serde(default)]
    pub current: i32,
    /// The model of new instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_hash: Option<SpecDigest>,
    /// Instances that have no Machine, and that none is being made for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_machine: i32,
    /// Some of them.
    #[serde(rename = "withoutMachineIDs", default, skip_serializing_if = "Vec::is_empty")]
    pub without_machine_ids: Vec<ProviderId>,
    /// What is wrong with it, as the infrastructure says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Since when it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// How many Nodes have a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionCount {
    /// The version.
    pub version: String,
    /// How many.
    pub replicas: i32,
}

open_enum! {
    /// How instances of an old template are replaced.
    pub enum PoolStrategyType {
        /// Instance after instance, within both budgets.
        RollingUpdate = "RollingUpdate",
        /// They are not replaced: each is drained, updated by the driver in place, and used again.
        InPlaceUpdate = "InPlaceUpdate",
        /// When a user deletes their Machines.
        OnDelete = "OnDelete",
    }
}

open_enum! {
    /// The fate of an instance after a failed update in place.
    pub enum PoolUpdateFailurePolicy {
        /// It keeps its place in the budget, and the update is tried again.
        Hold = "Hold",
        /// The instance is replaced.
        Replace = "Replace",
    }
}

open_enum! {
    /// Which of equal Machines goes first.
    pub enum PoolDeletePolicy {
        /// The oldest.
        Oldest = "Oldest",
        /// The newest.
        Newest = "Newest",
        /// Any Machine, and the same Machine in each pass.
        Random = "Random",
    }
}

open_enum! {
    /// Where in its life a pool is.
    pub enum PoolPhase {
        /// Nothing was asked of the infrastructure yet.
        Pending = "Pending",
        /// The group is being made.
        Provisioning = "Provisioning",
        /// The group has instances that are no Nodes yet.
        Provisioned = "Provisioned",
        /// The pool has as many Nodes as wanted.
        Running = "Running",
        /// The pool has too few Nodes.
        ScalingUp = "ScalingUp",
        /// The pool has too many Nodes.
        ScalingDown = "ScalingDown",
        /// Another system scales the pool.
        Scaling = "Scaling",
        /// The pool is being deleted.
        Deleting = "Deleting",
        /// Only a user can help.
        Failed = "Failed",
    }
}

open_enum! {
    /// Conditions of a pool. All are always there.
    pub enum PoolConditionType {
        /// All other health conditions are true.
        Ready = "Ready",
        /// The data are there that instances become Nodes with.
        BootstrapReady = "BootstrapReady",
        /// The group is there, and has every instance.
        InfrastructureReady = "InfrastructureReady",
        /// As many Machines are Running as wanted.
        ReplicasReady = "ReplicasReady",
        /// Every instance has the current model.
        MachinesUpToDate = "MachinesUpToDate",
        /// The pool has fewer Machines than wanted.
        ScalingUp = "ScalingUp",
        /// The pool has more Machines than wanted.
        ScalingDown = "ScalingDown",
        /// Machines that failed are being replaced.
        Remediating = "Remediating",
        /// The pool is being deleted.
        Deleting = "Deleting",
        /// False: the driver cannot delete a single instance, so a Machine of the pool cannot be deleted.
        Deletable = "Deletable",
        /// False: the spec is refused, or autoscalers cannot follow an annotation.
        Valid = "Valid",
    }
}

impl MachinePool {
    /// How many instances there are to be.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Whether another system decides how many there are: annotation `cluster.x-k8s.io/replicas-managed-by` has any
    /// value but `false`.
    pub fn is_externally_scaled(&self) -> bool {
        self.annotation(annotation::REPLICAS_MANAGED_BY).is_some_and(|by| by != "false")
    }

    /// Whether a user paused it.
    pub fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
            || self.annotation(annotation::CLUSTER_API_PAUSED).is_some()
            || self.annotation(annotation::PAUSED).is_some_and(|value| value != "false")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_reads_and_comes_back_the_same() {
        let text = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "namespace": "default" },
            "spec": {
                "clusterName": "c", "replicas": 3,
                "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } },
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0, "deletePolicy": "Newest" }
                }
            },
            "status": {
                "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "upToDateReplicas": 1,
                "unavailableReplicas": 1, "bootstrapReady": true, "infrastructureReady": false,
                "operation": {
                    "id": "op", "kind": "DeletePoolMachines", "idempotencyKey": "u:pd", "term": 7,
                    "attempt": 1, "expectedSize": 4, "newSize": 3, "providerIDs": ["x:///1"]
                }
            }
        });
        let pool: MachinePool = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&pool).unwrap(), text);
    }

    #[test]
    fn replicas_are_managed_by_others_unless_the_annotation_says_false() {
        for (value, external) in
            [(None, false), (Some("false"), false), (Some(""), true), (Some("autoscaler"), true)]
        {
            let mut pool = MachinePool::default();
            pool.metadata.annotations = value
                .map(|it| [(annotation::REPLICAS_MANAGED_BY.to_owned(), it.to_owned())].into());
            assert_eq!(pool.is_externally_scaled(), external, "{value:?}");
        }
    }
}
