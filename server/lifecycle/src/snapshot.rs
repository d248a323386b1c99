//! What a decision is made from: everything that was observed, at one point in time.

use ostler_api::OperationId;
use ostler_api::ProviderName;
use ostler_api::Revision;
use ostler_api::SpecDigest;
use ostler_api::Uid;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    Machine, MachineClass,
    driver::OperationKind,
    machine::{MachineStatus, WaitReason},
    names,
};
use serde_json::{Value, json};

use crate::{
    bootstrap::BootstrapView,
    class_rules,
    cluster::ClusterIds,
    digest,
    hint::HintView,
    hot_update::{Parallel, ReviewView, SlotView},
    operation::{
        ClassReference, Dispatch, Lane, OperationView, Request, SecretText, Target, UserData,
    },
    outage::ApiView,
    replacement::Siblings,
    unwritten::Unwritten,
};
pub use crate::{
    budget::BudgetFacts,
    pod::{PodView, Refusal, RefusalCause},
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

/// Everything that one pass over one Machine decides from.
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
    /// The secrets of its class, merged.
    pub secret: SecretView,
    /// What it is to become a Node with, if that does not come from its class.
    pub bootstrap: BootstrapView,
    /// The cluster that its Node joins.
    pub target: TargetView,
    /// The API servers.
    pub api: ApiView,
    /// What the API server drops of what the core writes, and what to do about it; `None`: nothing.
    pub outdated: Option<String>,
    /// The other members of its MachineDeployment. Needed only while it is unhealthy.
    pub siblings: Siblings,
    /// Its Node, see [`choose`](crate::node::choose).
    pub node: NodeView,
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
    /// The bootstrap token of the id that this Machine has or would take, see
    /// [`token_id_of`](crate::user_data::token_id_of).
    pub bootstrap_token: Observed<BootstrapToken>,
    /// The driver that serves the provider of the class.
    pub driver: DriverView,
    /// The operation of this Machine.
    pub operation: OperationView,
    /// What the driver said of the instance by itself.
    pub hint: Option<HintView>,
    /// What the driver says of the class and the change of it: the answer to
    /// [`Question::of`](crate::hot_update::Question::of).
    pub review: ReviewView,
    /// The update slots of the class.
    pub slot: SlotView,
    /// Name of another Machine that has the provider id which this Machine has, or which the
    /// finished operation reports.
    pub provider_id_holder: Option<String>,
    /// The ids that instances of this cluster are tagged with.
    pub cluster: ClusterIds,
    /// Leadership term of this core.
    pub term: i64,
    /// Values that a decision may use and cannot make itself.
    pub fresh: Fresh,
    /// Defaults of this core.
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

/// Random values for this pass. Each pass gets new ones.
#[derive(Debug, Clone)]
pub struct Fresh {
    /// A UUID, for an operation.
    pub operation_id: OperationId,
    /// Sixteen random characters out of `[a-z0-9]`, for a bootstrap token.
    pub token_secret: SecretText,
}

/// The class of a Machine.
#[derive(Debug, Clone, Default)]
pub enum ClassView {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// There is no such class.
    Missing,
    /// The class is of another namespace.
    NamespaceDenied,
    /// The class has no finalizer, and this is why: nothing is made with a class that could vanish.
    NotHeld(String),
    /// The class is gone, and this is what it was: good enough to delete what was made with it.
    LastKnown(ClassFacts),
    /// The class.
    Known(ClassFacts),
}

impl ClassView {
    /// The class, if it is there.
    pub const fn known(&self) -> Option<&ClassFacts> {
        match self {
            Self::Known(class) => Some(class),
            Self::Unknown
            | Self::Missing
            | Self::NamespaceDenied
            | Self::NotHeld(_)
            | Self::LastKnown(_) => None,
        }
    }
}

/// What decisions need of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Name of the class.
    pub name: String,
    /// Provider: which driver serves it.
    pub provider: ProviderName,
    /// What its author says of instances without a UID.
    pub adopt_by_name: AdoptByName,
    /// The provider spec as canonical JSON.
    pub provider_spec: String,
    /// Digest of `provider_spec`.
    pub spec_digest: SpecDigest,
    /// Capacity of its Nodes that no kubelet reports.
    pub virtual_capacity: BTreeMap<String, String>,
    /// Digest of everything in the class but its metadata and what only the core reads. Changes
    /// when, and only when, a driver could see a difference.
    pub revision: Revision,
    /// How many instances are updated at the same time.
    pub max_parallel: Parallel,
    /// `namespace/name` of the secrets that it names.
    pub secrets: Vec<String>,
    /// Whether a user paused the Machines of the class.
    pub paused: bool,
    /// The rules that it breaks, for people; see [`crate::class_rules`].
    pub broken_rules: Vec<String>,
}

impl ClassFacts {
    /// Reads a class.
    pub fn of(class: &MachineClass) -> Self {
        let provider_spec = digest::canonical(&class.spec.provider_spec);
        let mut content = serde_json::to_value(&class.spec).unwrap_or_else(|_| json!({}));
        if let Some(all) = content.as_object_mut() {
            all.retain(|key, value| *value != Value::Null && key != "hotUpdate");
        }
        let hot_update = class.spec.hot_update.as_ref();
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            provider: class.provider().into(),
            adopt_by_name: AdoptByName::of(class),
            virtual_capacity: virtual_capacity(class),
            spec_digest: digest::of_text(&provider_spec).into(),
            provider_spec,
            revision: digest::of_text(&digest::canonical(&content)).into(),
            max_parallel: Parallel::of(hot_update.and_then(|it| it.max_parallel.as_ref())),
            secrets: class.secret_refs().iter().map(|(of, name)| format!("{of}/{name}")).collect(),
            paused: class.is_paused(),
            broken_rules: class_rules::broken(class),
        }
    }

    /// An operation for the driver of the class, about an object in the namespace of the class.
    pub fn dispatch(
        &self,
        id: OperationId,
        target: Target,
        request: Request,
        timeout: Duration,
    ) -> Dispatch {
        Dispatch {
            id,
            idempotency_key: format!("{}:{}", target.uid, request.kind().letter()),
            provider: self.provider.clone(),
            class: Some(ClassReference {
                namespace: target.namespace.clone(),
                name: self.name.clone(),
                revision: self.revision.clone(),
            }),
            target,
            machine: None,
            timeout,
            adopt_by_name: false,
            checkpoint: String::new(),
            lane: Lane::Background,
            request,
        }
    }
}

/// Whether a Machine takes over the instance that has its name and no UID: one that another controller made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdoptByName {
    /// The operator did not say: nothing is taken over, and nothing is made in place of what may be
    /// there.
    #[default]
    Undecided,
    /// Annotated `"true"`.
    Allowed,
    /// Annotated `"false"`.
    Refused,
}

impl AdoptByName {
    fn of(class: &MachineClass) -> Self {
        let annotations = class.metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(names::annotation::ADOPT_BY_NAME));
        match value.map(String::as_str) {
            Some("true") => Self::Allowed,
            Some("false") => Self::Refused,
            Some(_) | None => Self::Undecided,
        }
    }
}

/// Quantities may be written as numbers.
fn virtual_capacity(class: &MachineClass) -> BTreeMap<String, String> {
    let template = class.spec.node_template.as_ref();
    let wanted = template.and_then(|template| template.get("virtualCapacity")?.as_object());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    wanted.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// The secrets of a class, merged.
#[derive(Debug, Clone, Default)]
pub enum SecretView {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// The class names no secret.
    NotReferenced,
    /// At least one does not exist: `namespace/name` of each.
    Missing(Vec<String>),
    /// At least one is of another namespace: `namespace/name` of each.
    NamespaceDenied(Vec<String>),
    /// At least one is gone, `namespace/name` of each, and this is what they were: good enough to
    /// delete what was made with them.
    LastKnown(SecretFacts, Vec<String>),
    /// The secrets.
    Known(SecretFacts),
}

/// What decisions need of the secrets of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFacts {
    /// Made of the revisions of all of them.
    pub revision: Revision,
    /// The user data, with its placeholders.
    pub user_data: Option<UserData>,
}

/// The cluster that the Node of a Machine joins: it has its pods and its bootstrap token too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetView {
    /// It is watched: Node and pods are what was seen there.
    #[default]
    Watched,
    /// There is none. No Node is waited for; Node, pods and token are absent.
    None,
    /// There is to be one and it cannot be looked into. Node, pods and token are unknown.
    Lacking {
        /// Why.
        reason: WaitReason,
        /// For people.
        message: String,
    },
}

/// The Node of a Machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum NodeView {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// Several Nodes claim to be it: their names.
    Ambiguous(Vec<String>),
    /// The Node.
    Known(Arc<Node>),
}

/// A bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    /// UID of the Machine that it was made for; `None`: it is none of ours.
    pub machine_uid: Option<Uid>,
    /// The secret half.
    pub secret: SecretText,
    /// When it stops working; `None`: never, or not readable.
    pub expires: Option<Timestamp>,
    /// The one Node that may be joined with it; `None`: any.
    pub node: Option<String>,
}

/// The driver that serves the provider of the class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DriverView {
    /// No driver can take an operation now: no session, or operations of an earlier core are still
    /// being taken over.
    #[default]
    Unavailable,
    /// One is connected and says that it can do nothing now: why, in its words, for people.
    NotReady(String),
    /// Ready.
    Ready(DriverFacts),
}

/// What decisions need of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriverFacts {
    /// Name and version. A driver that refused is asked again when this changes.
    pub identity: String,
    /// Verbs it has.
    pub kinds: BTreeSet<OperationKind>,
    /// Whether it knows instances by their names alone, and cannot tell whose they are.
    pub by_name: bool,
}

impl DriverFacts {
    /// Whether it has a verb.
    pub fn has(&self, kind: OperationKind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Defaults of this core; a Machine's own values win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// From the first operation to a healthy Node.
    pub creation_timeout: Duration,
    /// From unhealthy to Failed.
    pub health_timeout: Duration,
    /// From the deletion of the Machine to force.
    pub drain_timeout: Duration,
    /// From a Node that is ready for its update in place to one whose update failed.
    pub in_place_timeout: Duration,
    /// How long a preserved Machine is kept.
    pub preserve_timeout: Duration,
    /// How long a deletion waits for volumes to be detached.
    pub detach_timeout: Duration,
    /// How long a drain waits for a volume to be attached where a pod waits for it.
    pub reattach_timeout: Duration,
    /// How often the eviction of a pod is tried before it is deleted.
    pub max_evict_retries: i32,
    /// After how much time of terminating a pod is not waited for; `None`: always waited for.
    pub skip_wait_for_delete: Option<Duration>,
    /// How often a driver is asked whether the instance of an unhealthy Node still exists.
    pub instance_check: Duration,
    /// How often an instance is read whose Node does not come.
    pub join_check: Duration,
    /// How long after a refused eviction the next one is tried; then twice as long each time.
    pub eviction_retry: Duration,
    /// The longest wait between two evictions of a pod, and what `max_evict_retries` is reckoned in.
    pub eviction_retry_max: Duration,
    /// After how long `Ready` must have been lost for a drain to use force.
    pub unreachable_after: Duration,
    /// Retry after RESOURCE_EXHAUSTED when the driver names no time.
    pub resource_exhausted_retry: Duration,
    /// Node conditions that must be False.
    pub node_conditions: Vec<String>,
    /// Decides for all classes, whatever their annotation; `None`: each class for itself.
    pub adopt_by_name: Option<bool>,
}

impl Settings {
    /// Whether Machines of this class take over what has their name.
    pub fn adopt_by_name(&self, class: &ClassFacts) -> AdoptByName {
        match self.adopt_by_name {
            Some(true) => AdoptByName::Allowed,
            Some(false) => AdoptByName::Refused,
            None => class.adopt_by_name,
        }
    }

    /// Whether a driver may look for instances of this class by the names of their Machines.
    pub fn adopts_by_name(&self, class: &ClassFacts) -> bool {
        self.adopt_by_name(class) == AdoptByName::Allowed
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            creation_timeout: Duration::from_mins(20),
            health_timeout: Duration::from_mins(10),
            drain_timeout: Duration::from_hours(2),
            in_place_timeout: Duration::from_mins(20),
            preserve_timeout: Duration::from_hours(96),
            detach_timeout: Duration::from_mins(2),
            reattach_timeout: Duration::from_secs(90),
            max_evict_retries: 360,
            skip_wait_for_delete: None,
            instance_check: Duration::from_mins(5),
            join_check: Duration::from_mins(1),
            eviction_retry: Duration::from_secs(5),
            eviction_retry_max: Duration::from_secs(20),
            unreachable_after: Duration::from_mins(5),
            resource_exhausted_retry: Duration::from_mins(10),
            node_conditions: [
                "KernelDeadlock",
                "ReadonlyFilesystem",
                "DiskPressure",
                "NetworkUnavailable",
            ]
            .map(str::to_owned)
            .to_vec(),
            adopt_by_name: None,
        }
    }
}
