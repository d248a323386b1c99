//! Verbs with broken promises.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::Instance as Vm;
use ostler_driver_sdk::{
    ClassReview, Code, Context, CreateMachine, CreatePool, DeleteMachine, DeletePool,
    DeletePoolMachines, Deletion, Driver, DriverError, DriverInfo, Event, Events, GetMachineStatus,
    GetPoolStatus, GetVolumeIds, InitializeMachine, Instance, ListMachines, ListPools, Part, Pool,
    PoolInstance, PoolMachinesDeleted, PoolStatus, ProviderIdComparison, UpdateMachine, UpdatePool,
    UpdatePoolMachine, Updated, ValidateClass,
};
use parking_lot::Mutex;

use super::{Breakage, Reads};

mod change;
mod create;
mod pools;
mod read;

/// The fake driver, with one rule broken.
#[derive(Debug)]
pub(crate) struct Broken {
    fake: FakeDriver,
    breakage: Breakage,
    reads: Reads,
    memory: Mutex<Memory>,
    turn: tokio::sync::Mutex<()>,
}

/// The memory of this process.
#[derive(Debug, Default)]
struct Memory {
    /// Machines whose instance was made here.
    made: BTreeSet<String>,
    /// Machines whose instance was deleted here, and provider ids of hidden instances.
    deleted: BTreeSet<String>,
    /// When the list would have shown an instance first.
    seen: BTreeMap<String, Instant>,
    running: usize,
    /// What GetMachineStatus told, by UID.
    told: BTreeMap<String, Instance>,
    /// The size that a group is to have once the infrastructure answers again.
    later: Option<i32>,
}

impl Broken {
    /// Breaks one rule of `fake`, which can tell so much.
    pub(crate) fn new(fake: FakeDriver, breakage: Breakage, reads: Reads) -> Self {
        Self {
            fake,
            breakage,
            reads,
            memory: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn breaks(&self, breakage: Breakage) -> bool {
        self.breakage == breakage
    }

    /// The turn of an operation, where one waits for another.
    async fn alone(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.breaks(Breakage::BesideOthers) { Some(self.turn.lock().await) } else { None }
    }

    /// The instances that carry the identity of the target.
    fn vms(&self, ctx: &Context) -> Vec<Vm> {
        let identity = ctx.identity();
        let found = self.fake.cloud().with(|state| state.of_identity(&identity).cloned().collect());
        found.unwrap_or_default()
    }

    /// The instances that have an id which the cluster of the target had before.
    fn of_before(&self, ctx: &Context) -> Vec<Vm> {
        let is_previous = |cluster_id: &str| ctx.is_previous_cluster(cluster_id);
        self.fake.cloud().of_clusters(is_previous, None).unwrap_or_default()
    }

    /// Instances under a previous cluster id with the target's name and another UID.
    fn namesakes_of_before(&self, ctx: &Context) -> Vec<Vm> {
        let ours = ctx.target();
        let mut found = self.of_before(ctx);
        found.retain(|vm| {
            vm.identity.machine_name == ours.name && vm.identity.machine_uid != ours.uid
        });
        found
    }

    /// Puts an instance into the cloud as it is, in place of one of the same id.
    fn plant(&self, vm: &Vm) -> Result<(), DriverError> {
        Ok(self.fake.cloud().plant(vec![vm.clone()])?)
    }

    fn answer(&self, vm: &Vm) -> Instance {
        self.fake.answer(vm)
    }

    /// What the fake tells, and each time that every other instance is gone.
    fn false_alarms(&self) -> Events {
        let (told, cloud) = (self.fake.told().clone(), self.fake.cloud().clone());
        let alarms = Events::default();
        let sent = alarms.clone();
        tokio::spawn(async move {
            loop {
                let event = told.next().await;
                for vm in cloud.instances().unwrap_or_default() {
                    sent.send(Event::gone(&vm.provider_id).of(&vm.identity));
                }
                sent.send_raw(event);
            }
        });
        alarms
    }

    /// Whether an operation may run under a limit that the core does not know.
    fn enter(&self) -> Result<Entered<'_>, DriverError> {
        let mut memory = self.memory.lock();
        memory.running += 1;
        let entered = Entered(self);
        if self.breaks(Breakage::CreditRespected) && memory.running > 4 {
            drop(memory);
            return Err(DriverError::unavailable("too many operations at once").not_applied());
        }
        Ok(entered)
    }
}

/// Machines that are remembered, more than any check makes; then all are forgotten.
const MOST_REMEMBERED: usize = 10_000;

/// Whether `uid` is new.
fn remember(uids: &mut BTreeSet<String>, uid: String) -> bool {
    if uids.len() >= MOST_REMEMBERED {
        uids.clear();
    }
    uids.insert(uid)
}

/// One running operation.
struct Entered<'a>(&'a Broken);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.memory.lock().running -= 1;
    }
}

/// Whether the infrastructure did not answer.
fn is_away(error: &DriverError) -> bool {
    error.reason_word() == "CLOUD_AWAY"
}

/// Whether the infrastructure refused the credentials.
fn is_refused(error: &DriverError) -> bool {
    error.code() == Code::Unauthenticated
}

/// Another instance of the same machine.
fn twin(vm: &Vm, count: usize) -> Vm {
    Vm { provider_id: format!("{}-twin{count}", vm.provider_id), ..vm.clone() }
}

impl Driver for Broken {
    fn info(&self) -> DriverInfo {
        if self.breaks(Breakage::ListExactByZone) {
            return self.fake.info().compares_provider_ids(ProviderIdComparison::LastSegment);
        }
        self.fake.info()
    }

    fn events(&self) -> Option<Events> {
        if self.breaks(Breakage::EventsGone) {
            return Some(Events::default());
        }
        if self.breaks(Breakage::EventsNamed) {
            return Some(self.false_alarms());
        }
        self.fake.events()
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let _entered = self.enter()?;
        self.create(request).await
    }

    async fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        let _entered = self.enter()?;
        self.initialize(request).await
    }

    async fn update_machine(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        let _entered = self.enter()?;
        self.update(request).await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let _entered = self.enter()?;
        self.delete(request).await
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        let _entered = self.enter()?;
        let tells = match self.reads {
            Reads::All => true,
            Reads::ById => request.provider_id.is_some(),
            Reads::Nothing => false,
        };
        if !tells {
            return Err(DriverError::unimplemented("the list has what there is"));
        }
        self.status(request).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let _entered = self.enter()?;
        self.list(request).await
    }

    async fn list_parts(&self, request: ListMachines) -> Result<Vec<Part>, DriverError> {
        let cloud = self.fake.cloud();
        let of_ours = |id: &str| request.ctx.is_own_cluster(id);
        let all = cloud.of_clusters(of_ours, None).unwrap_or_default();
        let disk = |vm: &Vm| {
            let (name, uid) = (&vm.identity.machine_name, &vm.identity.machine_uid);
            Part::new("disk", format!("{}-disk", vm.provider_id)).machine(name, uid)
        };
        Ok(all.iter().filter(|_| self.breaks(Breakage::ListParts)).map(disk).collect())
    }

    async fn get_volume_ids(&self, request: GetVolumeIds) -> Result<Vec<String>, DriverError> {
        let _entered = self.enter()?;
        self.volumes(request).await
    }

    async fn validate_class(&self, request: ValidateClass) -> Result<ClassReview, DriverError> {
        let _entered = self.enter()?;
        self.validate(request).await
    }

    async fn create_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        self.make_pool(request).await
    }

    async fn update_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        self.change_pool(request).await
    }

    async fn delete_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        self.remove_pool(request).await
    }

    async fn get_pool_status(&self, request: GetPoolStatus) -> Result<PoolStatus, DriverError> {
        self.read_pool(request).await
    }

    async fn list_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        self.list_groups(request).await
    }

    async fn delete_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        self.remove_pool_machines(request).await
    }

    async fn update_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        self.bring_pool_machine(request).await
    }
}
