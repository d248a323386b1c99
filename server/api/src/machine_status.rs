//! Status of a Machine: upstream's fields, then ours, all optional.

use crate::OperationId;
use crate::ProviderId;
use crate::Revision;
use crate::SpecDigest;
use crate::Uid;
use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bootstrap::{BootstrapPhase, InfrastructurePhase, NodeRef},
    drain_status::{DeletionCause, DrainProgress},
    driver::OperationKind,
    history::MachineHistory,
    open_enum::open_enum,
    reasons::{FailureReason, WaitReason},
    step::{MachineStep, OperationVerb},
};

/// What is known of a Machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Addresses that the driver reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// The conditions of the Node, and ours beside them ([`MachineConditionType`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// What was tried last, and how it went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Phase as machine-controller-manager has it, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_status: Option<CurrentStatus>,
    /// What the driver wants to be handed back on its next operation; opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,

    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where in its life the Machine is. Derived from the rest; nothing decides by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<LifecyclePhase>,
    /// What is being done; absent when the Machine rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<MachineStep>,
    /// Since when the step is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_since: Option<Time>,
    /// What the Machine waits for; absent when it waits for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// The operation that was or is about to be sent to a driver. Written before it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationIntent>,
    /// How often the last operation failed, and what may end the wait for the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// When the first operation that may make an instance was decided. The creation timeout counts
    /// from here: a Machine that waited for its class or driver does not lose that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_started_at: Option<Time>,
    /// Digest of the provider spec that every create so far was sent with; empty if they differ,
    /// in which case the spec of the instance is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_spec_digest: Option<SpecDigest>,
    /// When the last create with an unknown outcome ended. "There is none" proves nothing until the
    /// infrastructure shows what is there. Absent: there was none, or the instance was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_unconfirmed_since: Option<Time>,
    /// Of an instance that another controller made, and of which no driver reported what it has: digest of the provider
    /// spec that its class had when the core first looked. Until the class has another one, nothing is to be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_spec_digest: Option<SpecDigest>,
    /// UID of the Machine that the instance is tagged with. Another one than its own: the Machine was
    /// restored or migrated, and its instance is still to be adopted.
    #[serde(rename = "instanceUID", default, skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<Uid>,
    /// Provider id of the instance, as a driver said it. `spec.providerID` is a user's to write: while that is another
    /// one, only a Node with this id is the Machine's, and the driver is asked.
    #[serde(rename = "instanceProviderID", default, skip_serializing_if = "Option::is_none")]
    pub instance_provider_id: Option<ProviderId>,
    /// Cluster id that the instance is tagged with. Another one than that of the core: the cluster moved, and
    /// the instance is still to be adopted. Empty: the driver knows of none.
    #[serde(rename = "instanceClusterID", default, skip_serializing_if = "Option::is_none")]
    pub instance_cluster_id: Option<String>,
    /// Id of the bootstrap token that was made for the Machine and still exists; its Secret is
    /// `kube-system/bootstrap-token-<id>`.
    #[serde(rename = "bootstrapTokenID", default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_token_id: Option<String>,
    /// Why the Machine is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    /// Why the Machine is Failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Whether the data are there that the instance becomes a Node with; absent: they are those of
    /// the class. Once true, it stays true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_ready: Option<bool>,
    /// How far the bootstrap is, in the word of the bootstrap provider if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_phase: Option<BootstrapPhase>,
    /// Whether the instance exists and is initialized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ready: Option<bool>,
    /// How far the instance is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_phase: Option<InfrastructurePhase>,
    /// Name of the Node, also before it is there: as label `node` says where a label can carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The Node, or the one that was there last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeRef>,
    /// Version of the kubelet of that Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A hot update that has not succeeded yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_update: Option<HotUpdate>,
    /// How far the drain is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainProgress>,
    /// What happened lately, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<MachineHistory>,
    /// Why it is being deleted, as far as the core can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_cause: Option<DeletionCause>,
    /// When its Node was healthy for the first time or, without Nodes, its instance was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Time>,
    /// Instances that were gone before their Node had joined, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<InstanceLosses>,
    /// When a driver was last asked whether the instance still exists whose Node is unhealthy, or
    /// does not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_checked_at: Option<Time>,
    /// Where no Node can tell: since when the driver says that the instance is stopped or being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_since: Option<Time>,
    /// What the infrastructure announced for the instance, as the driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_notice: Option<InstanceNotice>,
    /// Of a Machine of a pool: what the infrastructure says of its instance. Written by the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Box<InstanceStatus>>,
}

/// Instances of a Machine that were gone before their Node had joined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceLosses {
    /// How many, one after the other. The pause before the next one is made grows with it.
    pub count: i32,
    /// When the last one was found to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Time>,
    /// The last one.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// What the driver said then, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An instance of a group, as the infrastructure shows it. Its provider id stands in `spec.providerID` of the Machine,
/// its version
/// in the Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// The id of the instance within its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name in the infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The state of the instance in the infrastructure.
    pub provisioning_state: InstanceState,
    /// Whether it has the model that the group makes instances with.
    #[serde(default)]
    pub latest_model_applied: bool,
    /// The model of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_hash: Option<SpecDigest>,
    /// The problem of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

open_enum! {
    /// The infrastructure's state of an instance of a group.
    pub enum InstanceState {
        /// The instance is being made.
        Creating = "Creating",
        /// The instance is being changed.
        Updating = "Updating",
        /// The instance is being deleted.
        Deleting = "Deleting",
        /// The instance is as wanted.
        Succeeded = "Succeeded",
        /// The instance could not be made or changed.
        Failed = "Failed",
        /// Making or changing it was broken off.
        Canceled = "Canceled",
        /// The state is not known.
        Unknown = "Unknown",
    }
}

impl MachineStatus {
    /// Phase as machine-controller-manager has it.
    pub fn machine_phase(&self) -> MachinePhase {
        let current = self.current_status.as_ref();
        if current.is_some_and(CurrentStatus::shows_new) {
            return MachinePhase::New;
        }
        current.and_then(|current| current.phase.clone()).unwrap_or_default()
    }
}

/// What the infrastructure announced for an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceNotice {
    /// What it is.
    pub reason: NoticeReason,
    /// When it will happen; absent: the driver does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
    /// When the driver said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted_at: Option<Time>,
    /// What the infrastructure says of it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the owner of the Machine replaces it for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
}

open_enum! {
    /// The kind of an announcement from the infrastructure.
    pub enum NoticeReason {
        /// The infrastructure will end the instance.
        TerminationNotice = "TerminationNotice",
        /// It will work on the instance, which may be away for a while.
        MaintenanceNotice = "MaintenanceNotice",
    }
}

/// An address of the instance.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct MachineAddress {
    /// As in a Node: `InternalIP`, `Hostname`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// The address.
    pub address: String,
}

/// What was tried last, and how it went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Name of the driver's result code, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// How it went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<MachineState>,
    /// What it was.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<MachineOperationType>,
}

/// Phase as machine-controller-manager has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentStatus {
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,
    /// Whether the Machine has an instance that is to join: true while Pending, false before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_active: Option<bool>,
    /// Since when the phase holds; health timeouts count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Until when the Machine is preserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_expiry_time: Option<Time>,
}

/// What a Machine waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFor {
    /// The reason, for programs.
    pub reason: WaitReason,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when this is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The write-ahead intent: an operation that was or is about to be sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationIntent {
    /// UUID of the operation, new for every decision to dispatch.
    pub id: OperationId,
    /// The verb.
    pub kind: OperationVerb,
    /// The same for every attempt at the same intent.
    pub idempotency_key: String,
    /// Revision of the class that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_revision: Option<Revision>,
    /// Digest of the provider spec that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<SpecDigest>,
    /// Leadership term of the core that decided it: `leaseTransitions` of its Lease, greater for each later leader. 0: not
    /// known.
    #[serde(default)]
    pub term: i64,
    /// The number of this attempt: one more than the failures in a row before, reads included. 0: not known.
    #[serde(default)]
    pub attempt: i32,
    /// When it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The instance that a create named, to be adopted.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// True: its outcome was lost or the driver could not tell. A read decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
}

impl OperationIntent {
    /// The verb, if known to us.
    pub fn operation_kind(&self) -> Option<OperationKind> {
        OperationKind::from_name(self.kind.as_str())
    }
}

/// How often the last operation failed, and what may end the wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The verb that failed.
    pub kind: OperationVerb,
    /// Name of the result code.
    pub code: String,
    /// What the wait is called.
    pub reason: WaitReason,
    /// What the driver said, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often in a row it failed, the last time included. The wait grows with it.
    #[serde(default)]
    pub failures: i32,
    /// Of a Machine: since when it fails with this reason, whatever attempts were made in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Not before this; absent: not before something changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Revision of the class that it failed with; another one ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_revision: Option<Revision>,
    /// Revision of the secret that it failed with; another one ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_revision: Option<Revision>,
    /// Of a Machine, with codes Internal and Unimplemented: the process of the driver that it failed with; another one
    /// ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_process: Option<String>,
    /// With reasons `InstanceNotOurs` and `ClusterIdChanged`: the instance that the driver found. Of a pool: the instance
    /// that was to be updated or deleted.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
}

/// A hot update that has not succeeded yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HotUpdate {
    /// How far it is.
    pub state: HotUpdateState,
    /// Digest of the provider spec that was to be applied.
    pub spec_digest: SpecDigest,
    /// True: an earlier attempt may have changed the instance half way, so it is driven on to the
    /// current spec even where that equals the one last applied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirty: bool,
    /// Name and version of the driver that refused; another one is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

open_enum! {
    /// Phase as machine-controller-manager has it.
    #[derive(Default)]
    pub enum MachinePhase {
        /// Nothing happened yet.
        #[default]
        New = "",
        /// The instance exists, the Node does not.
        Pending = "Pending",
        /// The instance exists and no Node is expected.
        Available = "Available",
        /// The Node is healthy.
        Running = "Running",
        /// Being deleted.
        Terminating = "Terminating",
        /// The Node was healthy and is not any more.
        Unknown = "Unknown",
        /// Given up.
        Failed = "Failed",
        /// Creation failed and is tried again.
        CrashLoopBackOff = "CrashLoopBackOff",
        /// An in-place update runs.
        InPlaceUpdating = "InPlaceUpdating",
        /// An in-place update succeeded.
        InPlaceUpdateSuccessful = "InPlaceUpdateSuccessful",
        /// An in-place update failed.
        InPlaceUpdateFailed = "InPlaceUpdateFailed",
    }
}

open_enum! {
    /// How an operation went.
    pub enum MachineState {
        /// Not finished.
        Processing = "Processing",
        /// Failed; it may be tried again.
        Failed = "Failed",
        /// Succeeded.
        Successful = "Successful",
    }
}

open_enum! {
    /// The kind of an operation.
    pub enum MachineOperationType {
        /// Creation, initialization and joining.
        Create = "Create",
        /// Hot update.
        Update = "Update",
        /// In-place update.
        InPlaceUpdate = "InPlaceUpdate",
        /// Drain outside a deletion.
        DrainNode = "DrainNode",
        /// Health of the Node.
        HealthCheck = "HealthCheck",
        /// Deletion.
        Delete = "Delete",
    }
}

open_enum! {
    /// Where in its life a Machine is.
    pub enum LifecyclePhase {
        /// The data are missing, or nothing was asked of the infrastructure yet.
        Pending = "Pending",
        /// The instance is being made.
        Provisioning = "Provisioning",
        /// The instance is made and is to become a Node.
        Provisioned = "Provisioned",
        /// The Node is there and was Ready.
        Running = "Running",
        /// Being deleted.
        Deleting = "Deleting",
        /// The instance is gone, only the object is left.
        Deleted = "Deleted",
        /// Given up; a user has to act.
        Failed = "Failed",
    }
}

open_enum! {
    /// The state of a hot update.
    pub enum HotUpdateState {
        /// Sent, or about to be.
        Processing = "Processing",
        /// Failed, possibly half way; it is driven on to the current spec.
        Failed = "Failed",
        /// The driver does not change this on a running instance.
        Refused = "Refused",
        /// The driver cannot change running instances at all.
        Unsupported = "Unsupported",
    }
}

impl From<OperationKind> for OperationVerb {
    fn from(kind: OperationKind) -> Self {
        Self::from(kind.name())
    }
}

open_enum! {
    /// Our condition types. None of them is a condition of a Node, so that both can stand in one
    /// list: a condition of another type belongs to the Node.
    pub enum MachineConditionType {
        /// Whether the instance was made; False carries the driver's text.
        InstanceCreated = "InstanceCreated",
        /// False: an instance that was there before is not tagged with the UID of this Machine;
        /// carries the driver's text.
        InstanceAdopted = "InstanceAdopted",
        /// Whether the instance was initialized; False carries the driver's text.
        InstanceInitialized = "InstanceInitialized",
        /// True: a change of the class cannot reach the running instance.
        HotUpdateRefused = "HotUpdateRefused",
        /// Whether the last hot update succeeded; False carries the driver's text.
        HotUpdated = "HotUpdated",
        /// True: parts of the node template are malformed, and not put on the Node.
        NodeTemplateRefused = "NodeTemplateRefused",
        /// True: the value of an annotation that asks for preservation has no meaning.
        PreserveValueInvalid = "PreserveValueInvalid",
        /// True: several Nodes have the provider id of the instance; names them.
        NodeAmbiguous = "NodeAmbiguous",
        /// Whether the Node was drained.
        Drained = "Drained",
        /// Whether the instance was deleted; False carries the driver's text.
        InstanceDeleted = "InstanceDeleted",
    }
}

impl MachineConditionType {
    /// Whether a condition in `status.conditions` is ours.
    pub fn is_ours(type_: &str) -> bool {
        Self::WORDS.contains(&type_)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_of_the_contract_has_its_word() {
        for kind in OperationKind::ALL {
            assert!(!matches!(OperationVerb::from(kind), OperationVerb::Other(_)), "{kind}");
        }
    }

    #[test]
    fn no_condition_of_ours_is_one_of_a_node() {
        for node in [
            "Ready",
            "MemoryPressure",
            "DiskPressure",
            "PIDPressure",
            "NetworkUnavailable",
            "KernelDeadlock",
            "ReadonlyFilesystem",
            "Terminating",
            "InPlaceUpdate",
            "Preserved",
        ] {
            assert!(!MachineConditionType::is_ours(node), "{node}");
        }
    }
}
