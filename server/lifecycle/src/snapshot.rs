//! The input of a decision: everything observed at one point in time.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::{
    Machine, MachinePool, OperationId, ProviderName, Uid,
    machine::{MachineStatus, WaitReason},
    machine_pool::PoolConditionType,
};

use crate::{
    bootstrap::BootstrapView,
    cluster::ClusterIds,
    hint::HintView,
    hot_update::{ReviewView, SlotView},
    operation::{OperationView, SecretText},
    outage::ApiView,
    replacement::Siblings,
    unwritten::Unwritten,
};
pub use crate::{
    budget::BudgetFacts,
    class_facts::{AdoptByName, ClassFacts, ClassView, SecretFacts, SecretView},
    driver::{DriverFacts, DriverView},
    node::{IdComparison, NodeView},
    pod::{EvictionRefusal, PodView, RefusalCause},
    settings::Settings,
    volume::{AttachmentView, VolumeFacts, VolumesView},
};

/// Something that was looked for. `Unknown` is not `Absent`: that is how instances leak.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Observed<T> {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// Looked for, and not there.
    Absent,
    /// There.
    Known(T),
}

impl<T> Observed<T> {
    /// The value, if it is there.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The input of a pass over a Machine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The time.
    pub now: Timestamp,
    /// The Machine, with the status that is not written yet.
    pub machine: Arc<Machine>,
    /// The status of `machine`, if the API has another one.
    pub unwritten: Option<Unwritten>,
    /// Its class.
    pub class: ClassView,
    /// The class at the begin of the operation of unknown outcome, if the class changed since. The instance is looked
    /// for there.
    pub class_before: Option<ClassFacts>,
    /// The provider that has the instance, or may ([`holder`](crate::machine::holder)), if it is not the provider of
    /// the class.
    pub elsewhere: Option<ProviderName>,
    /// The secrets of its class, merged.
    pub secret: SecretView,
    /// The bootstrap data, if not from the class.
    pub bootstrap: BootstrapView,
    /// The target cluster of the Machine.
    pub target: TargetView,
    /// The API servers.
    pub api: ApiView,
    /// The fields that the API server drops, and what to do; `None`: no field.
    pub outdated: Option<String>,
    /// The other members of its MachineDeployment. Needed only while it is unhealthy.
    pub siblings: Siblings,
    /// Its Node, see [`choose`](crate::node::choose).
    pub node: NodeView,
    /// How the provider ids of Nodes are compared with its own.
    pub ids: IdComparison,
    /// All pods whose `spec.nodeName` is the Node. Needed only while it
    /// [is drained](Machine::is_drained).
    pub pods: Observed<Vec<PodView>>,
    /// Names of volumes that are attached to the Node. Needed only while it is being deleted.
    pub attached_volumes: Observed<Vec<String>>,
    /// Persistent volumes that have to do with the drain. Needed only while it
    /// [is drained](Machine::is_drained) and has, or had, pods with volumes.
    pub volumes: Observed<VolumesView>,
    /// Whether the API server can evict pods; where it cannot, they are deleted.
    pub can_evict: bool,
    /// Whether the API server looks at the Node that is named on a bootstrap token, as the embedded one does.
    pub binds_tokens: bool,
    /// The bootstrap token of the id that this Machine has or would take, see
    /// [`token_id_of`](crate::user_data::token_id_of).
    pub bootstrap_token: Observed<BootstrapToken>,
    /// The driver that serves the provider of the class.
    pub driver: DriverView,
    /// The pool of the Machine. Needed only while it is being deleted.
    pub pool: OwnPool,
    /// The operation of this Machine.
    pub operation: OperationView,
    /// The driver's own report on the instance.
    pub hint: Option<HintView>,
    /// The driver's review of the class and its change: the answer to
    /// [`Question::of`](crate::hot_update::Question::of).
    pub review: ReviewView,
    /// The update slots of the class.
    pub slot: SlotView,
    /// Name of another Machine with the provider id of this Machine or of the finished operation.
    pub provider_id_holder: Option<String>,
    /// The ids in the tags of this cluster's instances.
    pub cluster: ClusterIds,
    /// Leadership term of this core.
    pub term: i64,
    /// Random values for a decision, which is pure.
    pub fresh: Fresh,
    /// The core's defaults.
    pub settings: Settings,
}

impl Snapshot {
    /// The status that the API has.
    pub fn stored_status(&self) -> Option<&MachineStatus> {
        match &self.unwritten {
            Some(unwritten) => unwritten.stored.as_ref(),
            None => self.machine.status.as_ref(),
        }
    }
}

/// The pool of a Machine that is being deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnPool {
    /// The pool exists, or the Machine has none.
    #[default]
    There,
    /// The pool exists, and its driver cannot delete single instances.
    Whole,
    /// The pool is gone, and the driver found no group so many times in a row. The group may still exist: a pool that
    /// lost its finalizer by hand leaves a group behind, and the orphan scan deletes it.
    Gone(u32),
}

impl OwnPool {
    /// An existing pool.
    pub fn of(pool: &MachinePool) -> Self {
        let mut said = pool.status.iter().flat_map(|status| &status.conditions);
        let deletable = PoolConditionType::Deletable;
        let is_whole = said.any(|it| it.type_ == deletable.as_str() && it.status == "False");
        if is_whole { Self::Whole } else { Self::There }
    }

    /// Whether the pool is gone, with its group or without.
    pub const fn is_gone(self) -> bool {
        matches!(self, Self::Gone(_))
    }
}

/// Random values for this pass. Each pass gets new ones.
#[derive(Debug, Clone)]
pub struct Fresh {
    /// A UUID, for an operation.
    pub operation_id: OperationId,
    /// Sixteen random characters out of `[a-z0-9]`, for a bootstrap token.
    pub token_secret: SecretText,
}

/// The cluster that a Machine's Node joins, with its pods and the bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetView {
    /// The cluster is watched: Node and pods are as seen there.
    #[default]
    Watched,
    /// There is none. No Node is waited for; Node, pods and token are absent.
    None,
    /// The Machine has a target cluster that cannot be read. Node, pods and token are unknown.
    Lacking {
        /// Why.
        reason: WaitReason,
        /// For people.
        message: String,
    },
}

/// A bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    /// UID of the owning Machine or pool; `None`: the token is not ours.
    pub owner: Option<Uid>,
    /// The secret half.
    pub secret: SecretText,
    /// When it stops working; `None`: never, or not readable.
    pub expires: Option<Timestamp>,
    /// The only Node that may join with the token; `None`: any.
    pub node: Option<String>,
}
