//! The trait that a driver implements.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use ostler_proto::v1alpha1::{DriverCapability, OperationKind};

use crate::class::Class;
use crate::error::DriverError;
use crate::events::Events;
use crate::instance::{Instance, Part};
use crate::pool::{
    CreatePool, DeletePool, DeletePoolMachines, GetPoolStatus, ListPools, Pool, PoolInstance,
    PoolMachinesDeleted, PoolStatus, UpdatePool, UpdatePoolMachine,
};
use crate::readiness::Readiness;
use crate::request::{
    ClassReview, CreateMachine, DeleteMachine, Deletion, GetMachineStatus, GetVolumeIds,
    InitializeMachine, ListMachines, UpdateMachine, Updated, ValidateClass,
};

/// A driver: a handful of idempotent verbs.
///
/// Write each verb as a plain `async fn`. Four are required; the others answer `UNIMPLEMENTED`
/// until they are written *and* named in [`DriverInfo::offering`].
///
/// Rules for every verb:
///
/// * **Idempotent by identity.** The identity of an instance is cluster id + machine UID. A verb may
///   be called any number of times, also after the driver or the core crashed in the middle.
/// * **Hands off the rest.** Never touch what is not tagged with the cluster id of the request.
/// * **Truthful.** An error says what it left behind; an empty answer means "I looked and there is
///   nothing".
/// * **Cancellable.** A verb that takes long watches [`Context::cancelled`](crate::Context::cancelled). The verb is
///   dropped when its time is over.
pub trait Driver: Send + Sync + 'static {
    /// The provider, the name and the capabilities of the driver. Must not change while the process runs.
    fn info(&self) -> DriverInfo;

    /// The handle by which the driver says whether it can work; without a handle the driver counts as always ready.
    /// Called once, at the start.
    fn readiness(&self) -> Readiness {
        Readiness::default()
    }

    /// The handle by which the driver tells the core what happens to instances; `None`: it does not.
    /// Asked for once, at the start.
    fn events(&self) -> Option<Events> {
        None
    }

    /// Makes the instance, or finds it if it is there already.
    ///
    /// Looks up [`CreateMachine::provider_id`] first if that is given, then the identity. Tags the
    /// instance in the very call that makes it. Is done when the id is final, not when the node has
    /// joined.
    fn create_machine(
        &self,
        request: CreateMachine,
    ) -> impl Future<Output = Result<Instance, DriverError>> + Send;

    /// Deletes the instance and everything that was made with it, and says whether there was an instance. An instance
    /// that is there and not this machine's is [`Deletion::NotOurs`], and is not touched.
    fn delete_machine(
        &self,
        request: DeleteMachine,
    ) -> impl Future<Output = Result<Deletion, DriverError>> + Send;

    /// Reads one instance and changes nothing. An absent one is
    /// [`not_found`](DriverError::not_found).
    fn get_machine_status(
        &self,
        request: GetMachineStatus,
    ) -> impl Future<Output = Result<Instance, DriverError>> + Send;

    /// Reads all instances of the cluster that the class can show, also those that machine-controller-manager made and
    /// that have no tag of ours. Fails if the driver cannot look.
    fn list_machines(
        &self,
        request: ListMachines,
    ) -> impl Future<Output = Result<Vec<Instance>, DriverError>> + Send;

    /// Reads the parts of the cluster that belong to no instance: disks, network cards and addresses with its tags, left by
    /// a create or a deletion that did not end. The core deletes parts whose machine is gone, with
    /// [`delete_machine`](Self::delete_machine) and their UID. Fails if the driver cannot look.
    fn list_parts(
        &self,
        _request: ListMachines,
    ) -> impl Future<Output = Result<Vec<Part>, DriverError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// What [`list_machines`](Self::list_machines) of this class is a list of, e.g. account and region: the same word
    /// for two classes says that they have the same list, and the core asks once for both. At most 256 bytes. Name
    /// everything of the spec that decides it; what is in the secret need not be named. Empty: each class is asked
    /// for itself.
    fn list_scope(&self, _class: &Class) -> String {
        String::new()
    }

    /// Does what has to be done once, after the instance exists and before it is used.
    fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> impl Future<Output = Result<Instance, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::InitializeMachine)
    }

    /// Brings a running instance to the class as it is now, without replacing it.
    fn update_machine(
        &self,
        request: UpdateMachine,
    ) -> impl Future<Output = Result<Updated, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::UpdateMachine)
    }

    /// The ids by which the infrastructure knows these volumes; one for each, in order, empty where
    /// the volume is foreign.
    fn get_volume_ids(
        &self,
        request: GetVolumeIds,
    ) -> impl Future<Output = Result<Vec<String>, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::GetVolumeIds)
    }

    /// Checks a provider spec, and whether a change of it can be applied to a running instance.
    fn validate_class(
        &self,
        request: ValidateClass,
    ) -> impl Future<Output = Result<ClassReview, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::ValidateClass)
    }

    /// Makes the group of a pool with its tags, or finds it by its identity. A group that is found keeps its size and gets
    /// the model.
    fn create_pool(
        &self,
        request: CreatePool,
    ) -> impl Future<Output = Result<Pool, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::Pools)
    }

    /// Changes the size of a group as [`UpdatePool::allow`] says, or what it makes instances from. Takes no instance.
    fn update_pool(
        &self,
        request: UpdatePool,
    ) -> impl Future<Output = Result<Pool, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::Pools)
    }

    /// Deletes a group with its instances; done when nothing is left.
    fn delete_pool(
        &self,
        request: DeletePool,
    ) -> impl Future<Output = Result<Deletion, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::Pools)
    }

    /// Reads a group and, if asked, all of its instances: never a part of them. The driver deletes no instance of its
    /// own choice.
    fn get_pool_status(
        &self,
        request: GetPoolStatus,
    ) -> impl Future<Output = Result<PoolStatus, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::Pools)
    }

    /// Reads all groups of the cluster that the class can show. Fails if the driver cannot look.
    fn list_pools(
        &self,
        request: ListPools,
    ) -> impl Future<Output = Result<Vec<Pool>, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::Pools)
    }

    /// Deletes these instances and no other, as [`DeletePoolMachines::plan`] says; done when nothing brings them back.
    fn delete_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> impl Future<Output = Result<PoolMachinesDeleted, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::DeletePoolMachines)
    }

    /// Brings one instance to the model of its group, in place.
    fn update_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> impl Future<Output = Result<PoolInstance, DriverError>> + Send {
        not_written(&request.ctx, OptionalOperation::UpdatePoolMachine)
    }
}

fn not_written<T: Send>(
    _: &crate::Context,
    operation: OptionalOperation,
) -> impl Future<Output = Result<T, DriverError>> + Send + use<T> {
    let message = format!("{operation:?} is offered and not written");
    std::future::ready(Err(DriverError::unimplemented(message)))
}

/// A verb that a driver may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptionalOperation {
    /// [`Driver::initialize_machine`]. Without it, instances count as initialized.
    InitializeMachine,
    /// [`Driver::update_machine`]. Without it, no change of a class reaches running instances.
    UpdateMachine,
    /// [`Driver::get_volume_ids`]. Without it, a drain knows volumes by their CSI handles only.
    GetVolumeIds,
    /// [`Driver::validate_class`]. Without it, wrong classes show when the first machine is made.
    ValidateClass,
    /// Groups: [`Driver::create_pool`], `update_pool`, `delete_pool`, `get_pool_status` and `list_pools`, all of them.
    Pools,
    /// [`Driver::delete_pool_machines`]. Without this operation, machines of a pool cannot be deleted singly.
    DeletePoolMachines,
    /// [`Driver::update_pool_machine`]. Without it, instances of a group are replaced, not updated.
    UpdatePoolMachine,
}

impl OptionalOperation {
    /// The operations on the wire.
    pub(crate) fn kinds(self) -> &'static [OperationKind] {
        match self {
            Self::InitializeMachine => &[OperationKind::InitializeMachine],
            Self::UpdateMachine => &[OperationKind::UpdateMachine],
            Self::GetVolumeIds => &[OperationKind::GetVolumeIds],
            Self::ValidateClass => &[OperationKind::ValidateClass],
            Self::Pools => &[
                OperationKind::CreatePool,
                OperationKind::UpdatePool,
                OperationKind::DeletePool,
                OperationKind::GetPoolStatus,
                OperationKind::ListPools,
            ],
            Self::DeletePoolMachines => &[OperationKind::DeletePoolMachines],
            Self::UpdatePoolMachine => &[OperationKind::UpdatePoolMachine],
        }
    }
}

/// When the provider id of a Node is that of an instance, whatever the name of the Node: as the infrastructure itself
/// compares its ids. Two instances never have ids that are equal by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProviderIdComparison {
    /// The same letters.
    #[default]
    Exact,
    /// The same letters, of which those of ASCII may be capitals.
    CaseInsensitive,
    /// The same scheme, and the same letters after the last slash.
    LastSegment,
}

/// The provider, the name and the capabilities of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct DriverInfo {
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) max_in_flight: u32,
    pub(crate) list_lag: Option<Duration>,
    pub(crate) provider_ids: ProviderIdComparison,
    pub(crate) offered: BTreeSet<OptionalOperation>,
    /// Capabilities of the verbs, beside those of every session.
    pub(crate) capabilities: BTreeSet<DriverCapability>,
}

impl DriverInfo {
    /// A driver for `provider`: a DNS subdomain of at most 63 characters, which is what
    /// `MachineClass.provider` must say. It works on 16 operations at the same time.
    pub fn new(provider: impl Into<String>) -> Self {
        let provider = provider.into();
        Self {
            name: provider.clone(),
            provider,
            version: String::new(),
            max_in_flight: 16,
            list_lag: None,
            provider_ids: ProviderIdComparison::Exact,
            offered: BTreeSet::new(),
            capabilities: BTreeSet::new(),
        }
    }

    /// A name for people. Left out: the provider.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// A version for people, usually `env!("CARGO_PKG_VERSION")`.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// How many operations it works on at the same time, at least 1.
    pub fn max_in_flight(mut self, operations: u32) -> Self {
        self.max_in_flight = operations.max(1);
        self
    }

    /// How long after a call the infrastructure may not show what that made, and may go on to make it. For so long the core
    /// does not believe that there is nothing, after a create whose outcome is not known. Left out: a minute for deletions,
    /// and creates are repeated immediately. Zero: it shows everything immediately.
    pub const fn list_lag(mut self, lag: Duration) -> Self {
        self.list_lag = Some(lag);
        self
    }

    /// How the provider ids of Nodes are compared with those that the verbs tell. Left out: to the letter.
    pub const fn compares_provider_ids(mut self, by: ProviderIdComparison) -> Self {
        self.provider_ids = by;
        self
    }

    /// The optional verbs that are written. The core never calls an optional verb that is not named here.
    pub fn offering(mut self, operations: impl IntoIterator<Item = OptionalOperation>) -> Self {
        self.offered.extend(operations);
        self
    }

    /// The verbs look for instances by [`Context::is_own_cluster`](crate::Context::is_own_cluster),
    /// and CreateMachine puts the tags of today on what it finds. Without it, a core whose cluster had
    /// other ids takes no session of this driver: every machine would be made a second time.
    pub fn knows_previous_cluster_ids(self) -> Self {
        self.can(DriverCapability::PreviousClusterIds)
    }

    /// The driver finds instances by their name alone, and reads no tags. It cannot tell whose an
    /// instance is: see the capability `IDENTITY_BY_NAME` in the contract for what is lost by it.
    pub fn identity_by_name(self) -> Self {
        self.can(DriverCapability::IdentityByName)
    }

    /// Its groups replace outdated instances by themselves, with a surge of their own.
    pub fn pool_surge(self) -> Self {
        self.can(DriverCapability::PoolSurge)
    }

    /// Groups may delete instances that the core did not name, and the driver cannot switch that off.
    pub fn pool_scales_in(self) -> Self {
        self.can(DriverCapability::PoolScalesIn)
    }

    fn can(mut self, capability: DriverCapability) -> Self {
        self.capabilities.insert(capability);
        self
    }

    pub(crate) fn offers(&self, operation: OptionalOperation) -> bool {
        self.offered.contains(&operation)
    }

    pub(crate) fn operation_kinds(&self) -> Vec<OperationKind> {
        let required = [
            OperationKind::CreateMachine,
            OperationKind::DeleteMachine,
            OperationKind::GetMachineStatus,
            OperationKind::ListMachines,
        ];
        let offered = self.offered.iter().flat_map(|optional| optional.kinds()).copied();
        required.into_iter().chain(offered).collect()
    }
}
