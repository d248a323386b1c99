//! The content of a decision: writes, operations to send, and the wait.

use ostler_api::OperationId;
use ostler_api::ProviderId;
use ostler_api::Uid;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use ostler_api::{
    bootstrap::BootstrapText,
    machine::{DeletionCause, MachineStatus, WaitReason},
};
use serde_json::Value;

pub use crate::event::{Event, EventAction, EventReason};
use crate::{
    bootstrap::ConfigName,
    budget::BudgetFacts,
    hint::HintUse,
    hot_update::{Question, SlotUse},
    operation::{Dispatch, SecretText},
};

/// The answer to a snapshot. Executed in this order: actions, one status write, then, only if that
/// was accepted or may wait, cancel, acknowledge and dispatch. See [`record`](crate::record::record).
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Writes to the API, in this order, some [beside](Action::goes_beside) each other. The first that
    /// fails ends the pass, unless it [need not be done](Action::on_failure).
    pub actions: Vec<Action>,
    /// The status that the Machine is to have once the actions are done.
    pub status: MachineStatus,
    /// The operation to send. A mutation stands in `status.operation`.
    pub dispatch: Option<Dispatch>,
    /// Whether `status` may wait: all its urgent content is in the API before the next pass, which a write of this pass
    /// causes.
    pub status_waits: bool,
    /// Id of an operation that is to be stopped.
    pub cancel: Option<OperationId>,
    /// Id of a finished operation whose result is in `status` now.
    pub acknowledge: Option<OperationId>,
    /// The pass's use of the driver's hint; `None`: none yet.
    pub hint: Option<HintUse>,
    /// The events for people.
    pub events: Vec<Event>,
    /// When to look again.
    pub next: Next,
}

/// When to look again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// When something that was observed changes.
    OnChange,
    /// At this time, or when something changes.
    Wait {
        /// Why.
        reason: WaitReason,
        /// Until when.
        until: Timestamp,
    },
    /// Never: the Machine is gone.
    Done,
}

impl Next {
    /// The same, but no later than `at`.
    pub(crate) fn by(self, reason: WaitReason, at: Timestamp) -> Self {
        match self {
            Self::Done => Self::Done,
            Self::OnChange => Self::Wait { reason, until: at },
            Self::Wait { reason, until } => Self::Wait { reason, until: until.min(at) },
        }
    }
}

/// A write to the API. Every one may be repeated.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Look at the Node in the API itself: it must still be as it was observed, or the plan is
    /// outdated. Changes nothing.
    ConfirmNode {
        /// Its name.
        name: String,
        /// The observed resource version; `None`: no Node.
        version: Option<String>,
    },
    /// Take the turn of a MachineDeployment to replace a Machine, unless another one took it since. Given back if the
    /// pass comes to nothing. No part of the turn is in the API.
    ClaimReplacement {
        /// The value of the label `name`.
        deployment: String,
        /// When it was last taken, as observed.
        seen: Option<Timestamp>,
    },
    /// Take or give back an update slot of the class, or a place in the line. No part of the slot is in the API.
    UpdateSlot {
        /// The wanted use of the slot.
        wanted: SlotUse,
        /// How many slots there are. The plan is outdated if no slot is free any more. `None`: the update runs already,
        /// so it takes its slot whatever the limit.
        limit: Option<usize>,
    },
    /// Ask the driver to review the class. The Machine is looked at again when it has answered.
    AskReview(Question),
    /// Change the Machine outside its status.
    PatchMachine(MachinePatch),
    /// Make the Machine the owner of the object of its bootstrap provider.
    OwnConfig(OwnConfig),
    /// Delete the copy of a template that the Machine owns; fine if it is gone.
    DeleteConfig {
        /// The copy.
        config: ConfigName,
        /// Its UID, as a precondition.
        uid: Uid,
    },
    /// Make the bootstrap token, or replace the existing token of the Machine.
    EnsureBootstrapToken(TokenRequest),
    /// Delete the bootstrap token; fine if it is gone or belongs to another object.
    DeleteBootstrapToken {
        /// Its id.
        id: String,
        /// What the pass does if the token stays.
        on_failure: OnFailure,
    },
    /// Change the Node; fine if it is gone.
    PatchNode(NodePatch),
    /// Change the status of the Node; fine if it is gone.
    PatchNodeStatus(NodeStatusPatch),
    /// Ask for the eviction of a pod.
    Evict(PodRef),
    /// Delete a pod with its own grace, where there is no eviction.
    EndPod(PodRef),
    /// Delete a pod immediately, with grace 0.
    DeletePod(PodRef),
    /// Show the Machine's deletion on the Node, by condition `Terminating`.
    MarkNode {
        /// Name of the Node.
        name: String,
        /// Why.
        cause: DeletionCause,
    },
    /// Delete a VolumeAttachment of the Node, so that the volume is detached though no kubelet released it; fine if
    /// already gone.
    DeleteAttachment {
        /// Its name.
        name: String,
        /// Its UID, as a precondition.
        uid: Uid,
    },
    /// Delete the Node; fine if it is gone.
    DeleteNode {
        /// Its name.
        name: String,
        /// Its UID, as a precondition.
        uid: Uid,
    },
    /// Delete the Machine itself, with its UID as a precondition: a user deleted its Node.
    DeleteMachine,
    /// Take our finalizer from the Machine. The last action of its life.
    RemoveFinalizer,
}

impl Action {
    /// What a pass does after a failed action. A drain looks at every pod, force waits for none, and a deletion does
    /// not wait for mere notices.
    pub const fn on_failure(&self) -> OnFailure {
        match self {
            Self::PatchNode(NodePatch { on_failure, .. })
            | Self::DeleteBootstrapToken { on_failure, .. } => *on_failure,
            Self::PatchNodeStatus(_) | Self::MarkNode { .. } | Self::DeleteConfig { .. } => {
                OnFailure::Repeat
            }
            Self::Evict(_)
            | Self::EndPod(_)
            | Self::DeletePod(_)
            | Self::DeleteAttachment { .. } => OnFailure::GoOn,
            Self::ConfirmNode { .. }
            | Self::ClaimReplacement { .. }
            | Self::UpdateSlot { .. }
            | Self::AskReview(_)
            | Self::PatchMachine(_)
            | Self::OwnConfig(_)
            | Self::EnsureBootstrapToken(_)
            | Self::DeleteNode { .. }
            | Self::DeleteMachine
            | Self::RemoveFinalizer => OnFailure::Stop,
        }
    }

    /// Whether the next action is performed at the same time, which spares a round trip. Neither needs what the other
    /// does, the status names both only when both are done, and the next pass goes on from either alone.
    pub const fn goes_beside(&self, next: &Self) -> bool {
        matches!(
            (self, next),
            (
                Self::PatchMachine(MachinePatch { add_finalizer: true, .. }),
                Self::EnsureBootstrapToken(_)
            ) | (Self::PatchNode(_), Self::DeleteBootstrapToken { .. })
        )
    }

    /// The meaning of a conflict (409): the object is not the observed one. `None`: the plan is outdated.
    pub const fn on_conflict(&self) -> Option<Performed> {
        if matches!(self, Self::DeleteNode { .. } | Self::DeleteMachine) {
            return Some(Performed::Gone);
        }
        // A change of the Node is made from the version that was observed, and from no other.
        let again = matches!(self, Self::PatchNode(_));
        if again || matches!(self.on_failure(), OnFailure::Stop) {
            return None;
        }
        Some(Performed::Conflict)
    }

    /// The pod of the action.
    pub const fn pod(&self) -> Option<&PodRef> {
        let (Self::Evict(pod) | Self::EndPod(pod) | Self::DeletePod(pod)) = self else {
            return None;
        };
        Some(pod)
    }

    /// A word for logs, metrics and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ConfirmNode { .. } => "ConfirmNode",
            Self::ClaimReplacement { .. } => "ClaimReplacement",
            Self::UpdateSlot { .. } => "UpdateSlot",
            Self::AskReview(_) => "AskReview",
            Self::PatchMachine(_) => "PatchMachine",
            Self::OwnConfig(_) => "OwnConfig",
            Self::DeleteConfig { .. } => "DeleteConfig",
            Self::EnsureBootstrapToken(_) => "EnsureBootstrapToken",
            Self::DeleteBootstrapToken { .. } => "DeleteBootstrapToken",
            Self::PatchNode(_) => "PatchNode",
            Self::PatchNodeStatus(_) => "PatchNodeStatus",
            Self::Evict(_) => "Evict",
            Self::EndPod(_) => "EndPod",
            Self::DeletePod(_) => "DeletePod",
            Self::MarkNode { .. } => "MarkNode",
            Self::DeleteAttachment { .. } => "DeleteAttachment",
            Self::DeleteNode { .. } => "DeleteNode",
            Self::DeleteMachine => "DeleteMachine",
            Self::RemoveFinalizer => "RemoveFinalizer",
        }
    }
}

/// The pass's reaction to a failed action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The pass ends: the plan is void.
    #[default]
    Stop,
    /// The pass goes on, reports the failure, and is repeated soon.
    Repeat,
    /// The pass goes on.
    GoOn,
}

/// A change of the Machine outside its status. Written with the resource version of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachinePatch {
    /// Put our finalizer on it.
    pub add_finalizer: bool,
    /// Have the API server drop the managed fields, a third of its cost of a write. Alone no reason for a patch.
    pub forget_managers: bool,
    /// New `spec.providerID`.
    pub provider_id: Option<ProviderId>,
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Annotations to set, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The data from the bootstrap provider.
    pub bootstrap: Option<BootstrapPatch>,
}

/// Data of a bootstrap provider that are taken over into `spec.bootstrap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootstrapPatch {
    /// The new `dataSecretName`.
    DataSecretName(String),
    /// The new `data`.
    Data(BootstrapText),
}

/// The owners that an object of a bootstrap provider is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnConfig {
    /// The object.
    pub config: ConfigName,
    /// The observed version of the config, as a precondition.
    pub resource_version: String,
    /// All of its owner references, as JSON.
    pub owner_references: Value,
}

impl MachinePatch {
    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A bootstrap token that is to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// The id; the Secret is `kube-system/bootstrap-token-<id>`.
    pub id: String,
    /// UID of the owning Machine or pool. A token of another owner is never replaced.
    pub owner: Uid,
    /// The secret half.
    pub secret: SecretText,
    /// When the token stops working.
    pub expires: Timestamp,
    /// The only Node that may join with the token; `None`: name not known yet.
    pub node: Option<String>,
    /// Groups of the joining user, beside the groups of every token; may be empty.
    pub groups: String,
    /// For people.
    pub description: String,
}

/// All due changes of a Node as one write. Its finalizers and taints are lists that others write too: the patch carries
/// the resource version that was observed.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a change of its own, all may be due")]
pub struct NodePatch {
    /// Name of the Node.
    pub name: String,
    /// UID of the Node, as a precondition.
    pub uid: Uid,
    /// What the pass does if the patch fails.
    pub on_failure: OnFailure,
    /// Put our finalizer on it.
    pub add_finalizer: bool,
    /// Take our finalizer from it.
    pub remove_finalizer: bool,
    /// Take the taint `instance-not-ready` from it.
    pub remove_not_ready_taint: bool,
    /// Make the Node unschedulable.
    pub cordon: bool,
    /// Make the Node schedulable again.
    pub uncordon: bool,
    /// Label the Node with the Machine's name.
    pub label_machine: bool,
    /// Labels to set, or with `None` to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// All wanted taints, but for the fields above.
    pub taints: Option<Vec<Taint>>,
}

/// One change of the status of a Node, on condition of the version that was observed. Conditions without a name here
/// stay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeStatusPatch {
    /// Name of the Node.
    pub name: String,
    /// Capacity to set, or with `None` to remove.
    pub capacity: BTreeMap<String, Option<String>>,
    /// Conditions to set.
    pub conditions: Vec<NodeCondition>,
}

impl NodeStatusPatch {
    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.capacity.is_empty() && self.conditions.is_empty()
    }
}

impl NodePatch {
    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A pod, with its UID as a precondition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: Uid,
}

/// How an action went. A result for each action of the plan, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Performed {
    /// Done, or it was so already.
    Done,
    /// The object of the action does not exist any more, or another object has its name.
    Gone,
    /// An eviction was refused because of PodDisruptionBudgets: the observed budgets of the pod.
    Refused(Vec<BudgetFacts>),
    /// Refused because the object is another one than was observed (409): look again.
    Conflict,
    /// Failed: what the API server said.
    Failed(String),
    /// Not tried, because an earlier one failed.
    Skipped,
}

impl Performed {
    /// A deletion of a Node with this UID was answered with 409. `there`: the UID of the present Node of the name; the
    /// same Node was not deleted because something else refused, such as a webhook.
    pub fn of_refused_node_deletion(uid: &str, there: Option<&str>) -> Self {
        if there == Some(uid) {
            return Self::Failed("the node is there, and was not deleted".to_owned());
        }
        Self::Gone
    }
}
