//! The request to a driver.

use crate::OperationId;
use crate::ProviderId;
use crate::ProviderName;
use crate::Revision;
use crate::Uid;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{MachineMetadata, PoolModel, PoolSize, UserData};
use crate::driver::OperationKind;
use crate::{Machine, MachineClass, names};

/// The object that an operation is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Its kind, see [`names`](crate::names).
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID. At most one mutation is in flight for a UID.
    pub uid: Uid,
}

impl Target {
    /// A Machine.
    pub fn of_machine(machine: &Machine) -> Self {
        Self {
            kind: names::MACHINE.to_owned(),
            namespace: machine.metadata.namespace.clone().unwrap_or_default(),
            name: machine.name().to_owned(),
            uid: machine.uid().into(),
        }
    }

    /// A class.
    pub fn of_class(class: &MachineClass) -> Self {
        let meta = &class.metadata;
        Self {
            kind: names::MACHINE_CLASS.to_owned(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default().into(),
        }
    }
}

/// A class at a revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassReference {
    /// Namespace of the class.
    pub namespace: String,
    /// Name of the class.
    pub name: String,
    /// Compared for equality only; empty: no particular one.
    pub revision: Revision,
}

/// An operation that is to be sent to the driver of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The id of the operation, new for every decision to dispatch.
    pub id: OperationId,
    /// The same for every attempt at the same intent; at most 64 ASCII characters.
    pub idempotency_key: String,
    /// `MachineClass.provider`: the provider of the driver. Aliases are resolved by the sessions.
    pub provider: ProviderName,
    /// The target of the operation.
    pub target: Target,
    /// The Machine's data for the driver; `None`: no known Machine.
    pub machine: Option<Box<MachineMetadata>>,
    /// The class; its revision is kept for the driver until the operation ends.
    pub class: Option<ClassReference>,
    /// How long the driver may take, from receipt. Waiting for credit is bounded by the same time and
    /// does not count.
    pub timeout: Duration,
    /// Whether an instance without UID is found by the name of the machine, see
    /// [`ADOPT_BY_NAME`](crate::names::annotation::ADOPT_BY_NAME).
    pub adopt_by_name: bool,
    /// The driver's last checkpoint, handed back to the driver; at most 4 KiB.
    pub checkpoint: String,
    /// The priority of the operation.
    pub lane: Lane,
    /// The verb with its arguments.
    pub request: Request,
}

impl Dispatch {
    /// The verb.
    pub const fn kind(&self) -> OperationKind {
        self.request.kind()
    }
}

/// Priority of an operation. Within a lane reads go before mutations and deletes before creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Lane {
    /// A user changed something.
    #[default]
    User,
    /// Resync, orphan collection, health.
    Background,
}

/// A verb with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Make the instance.
    Create {
        /// User data with its placeholders replaced; `None`: the class has none.
        user_data: Option<UserData>,
        /// Not empty: look this instance up first and adopt it: put the UID of the Machine on it.
        provider_id: ProviderId,
    },
    /// Initialize the instance.
    Initialize {
        /// As for the creation: some infrastructures start the instance only now.
        user_data: Option<UserData>,
        /// The instance.
        provider_id: ProviderId,
    },
    /// Bring the running instance to the current spec of the class.
    Update {
        /// The instance.
        provider_id: ProviderId,
        /// The spec that may be on the instance, as JSON; empty when unknown.
        last_applied_spec_json: String,
    },
    /// Make the instance go away.
    Delete {
        /// May be empty: find it by identity.
        provider_id: ProviderId,
    },
    /// Read the instance.
    Status {
        /// May be empty: find it by identity.
        provider_id: ProviderId,
    },
    /// Name persistent volumes as the infrastructure does.
    VolumeIds {
        /// Spec of each PersistentVolume as JSON, by its name.
        specs: BTreeMap<String, String>,
    },
    /// Read all instances that the credentials of the class show.
    List,
    /// Check the spec of the class, or a change of the spec.
    Validate {
        /// The spec, as JSON.
        spec_json: String,
        /// The spec before the change, as JSON; empty: only the spec itself is checked.
        old_spec_json: String,
    },
    /// Make the group of a pool, or find it.
    CreatePool {
        /// How many instances a new group is to have.
        desired: i32,
        /// The model of the instances.
        model: PoolModel,
        /// Not empty: look up and adopt the group with this id first.
        provider_id: ProviderId,
    },
    /// Change the size or the model of a group.
    UpdatePool {
        /// The group.
        provider_id: ProviderId,
        /// `None`: as many as now.
        size: Option<PoolSize>,
        /// `None`: unchanged.
        model: Option<PoolModel>,
    },
    /// Make a group with its instances go away.
    DeletePool {
        /// May be empty: find it by identity.
        provider_id: ProviderId,
    },
    /// Read a group.
    PoolStatus {
        /// May be empty: find it by identity.
        provider_id: ProviderId,
        /// Whether to list the instances.
        with_instances: bool,
    },
    /// Read all groups that the credentials of the class show.
    ListPools,
    /// Delete these instances of a group, and no other.
    DeletePoolMachines {
        /// The group.
        provider_id: ProviderId,
        /// The instances, 1 to 100.
        instances: Vec<ProviderId>,
        /// The wanted size equals the expected one (the group makes others), or is less by the
        /// number of instances.
        size: PoolSize,
    },
    /// Bring one instance to the model of its group, in place.
    UpdatePoolMachine {
        /// The group.
        provider_id: ProviderId,
        /// The instance.
        instance: ProviderId,
        /// The model to bring the instance to.
        model_hash: String,
        /// The Node is drained: the instance may be restarted or made anew.
        drained: bool,
    },
}

impl Request {
    /// The verb.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Create { .. } => OperationKind::CreateMachine,
            Self::Initialize { .. } => OperationKind::InitializeMachine,
            Self::Update { .. } => OperationKind::UpdateMachine,
            Self::Delete { .. } => OperationKind::DeleteMachine,
            Self::Status { .. } => OperationKind::GetMachineStatus,
            Self::VolumeIds { .. } => OperationKind::GetVolumeIds,
            Self::List => OperationKind::ListMachines,
            Self::Validate { .. } => OperationKind::ValidateClass,
            Self::CreatePool { .. } => OperationKind::CreatePool,
            Self::UpdatePool { .. } => OperationKind::UpdatePool,
            Self::DeletePool { .. } => OperationKind::DeletePool,
            Self::PoolStatus { .. } => OperationKind::GetPoolStatus,
            Self::ListPools => OperationKind::ListPools,
            Self::DeletePoolMachines { .. } => OperationKind::DeletePoolMachines,
            Self::UpdatePoolMachine { .. } => OperationKind::UpdatePoolMachine,
        }
    }
}
