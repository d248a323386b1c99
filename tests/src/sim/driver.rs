//! A driver that has bad days: the fake one, with calls that are slow, fail, hang and die around it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Bootstrap, Instance as CloudInstance, Lookup, NewInstance};
use ostler_driver_fake::spec::{ProviderSpec, Resource};
use ostler_driver_sdk::{
    ClassReview, Context, CreateMachine, CreatePool, DeleteMachine, DeletePool, DeletePoolMachines,
    Deletion, Driver, DriverError, DriverInfo, GetMachineStatus, GetPoolStatus, GetVolumeIds,
    InitializeMachine, Instance, ListMachines, ListPools, OptionalOperation, Pool, PoolInstance,
    PoolMachinesDeleted, PoolStatus, UpdateMachine, UpdatePool, UpdatePoolMachine, Updated,
    ValidateClass,
};
use tokio::time::{Instant, sleep};

use super::mutation::Mutation;
use super::oracle::Oracle;
use super::plan::Lie;
use super::pools::ELSEWHERE;
use super::search::Search;
use super::trace::Trace;
use super::weather::{Mishap, Sky};

/// Optional operations of a driver with groups.
const POOLS: [OptionalOperation; 3] = [
    OptionalOperation::Pools,
    OptionalOperation::DeletePoolMachines,
    OptionalOperation::UpdatePoolMachine,
];
/// Operations that a driver remembers, to pry.
const MOST_ANSWERED: usize = 64;
/// After how long an answer has arrived at the core, or never will.
const LONG_AGO: Duration = Duration::from_secs(90);
/// How long an infrastructure may not see what it made, by the contract. By the clock of a core that is
/// wrong, that time is over sooner.
const BLIND: Duration = Duration::from_secs(115);
/// Lists that are remembered, to be shown again later.
const OLD_LISTS: usize = 4;

/// What a driver process dies of in the middle of a call: with the effect or without. Says so to
/// the part that runs it, and is asked before every mutation.
pub type OnCall = Arc<dyn Fn() -> Option<Death> + Send + Sync>;

/// A death in the middle of a call.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a function cannot be shown")]
pub struct Death {
    /// Whether the work is done first.
    pub after_effect: bool,
    /// Ends the process.
    pub die: Arc<dyn Fn() + Send + Sync>,
}

/// The driver of one process.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a function cannot be shown")]
pub struct SimDriver {
    /// Name in the trace.
    pub name: String,
    /// The provider of the driver.
    pub provider: &'static str,
    /// The fake driver that does the work.
    pub fake: FakeDriver,
    /// What goes wrong.
    pub sky: Sky,
    /// Delays of the cloud's searches.
    pub search: Search,
    /// Where it is written down.
    pub trace: Trace,
    /// Who judges.
    pub oracle: Oracle,
    /// Deaths.
    pub on_call: OnCall,
    /// The promise that is broken.
    pub mutation: Option<Mutation>,
    /// Whether it has groups.
    pub pools: bool,
    /// Earlier lists.
    pub lists: Arc<Mutex<Vec<Vec<Instance>>>>,
    /// Operations that were answered, and when.
    pub answered: Arc<Mutex<VecDeque<(Instant, Context)>>>,
}

/// Ends a call in the books of the oracle, also when it is dropped.
struct Open<'a>(&'a SimDriver, String, &'static str);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.oracle.call_ended(&self.0.name, &self.1, self.2);
    }
}

impl SimDriver {
    async fn call<T>(
        &self,
        verb: &'static str,
        ctx: &Context,
        work: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let (target, id) = (ctx.target().clone(), ctx.operation_id().to_owned());
        self.trace.note(&self.name, format_args!("{verb} {} begins", target.name));
        self.oracle.call_began(&self.name, (verb, &target.uid, &id));
        let _open = Open(self, target.uid.clone(), verb);
        let answer = self.spoilt(verb, work).await;
        self.pry(ctx);
        match &answer {
            Ok(_) => self.trace.note(&self.name, format_args!("{verb} {} -> OK", target.name)),
            Err(error) => self.trace.note(
                &self.name,
                format_args!(
                    "{verb} {} -> {:?} {:?}",
                    target.name,
                    error.code(),
                    error.certainty()
                ),
            ),
        }
        answer
    }

    /// INV-7: asks for the secret of an operation that was answered long ago.
    fn pry(&self, ended: &Context) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.push_back((Instant::now(), ended.clone()));
        if answered.len() > MOST_ANSWERED {
            answered.pop_front();
        }
        let long_ago = |(at, _): &(Instant, Context)| at.elapsed() > LONG_AGO;
        let Some((_, old)) = answered.front().filter(|one| long_ago(one)).cloned() else { return };
        answered.pop_front();
        let (trace, name) = (self.trace.clone(), self.name.clone());
        tokio::spawn(async move {
            let got = old.fresh_secret().await.is_ok();
            trace.note(&name, format_args!("pries {}, {got}", old.operation_id()));
            if got {
                trace.violation(format_args!("INV-7: {name} gets the secret of an old operation"));
            }
        });
    }

    async fn spoilt<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        let mutates = !verb.starts_with("Get") && !verb.starts_with("List");
        if mutates && let Some(death) = (self.on_call)() {
            if death.after_effect {
                drop(work.await);
            }
            self.trace.note(&self.name, format_args!("dies in {verb}"));
            (death.die)();
            return std::future::pending().await;
        }
        match self.sky.call() {
            Mishap::None if mutates => self.search.told(&self.sky, work.await?),
            Mishap::None => work.await,
            Mishap::Slow(time) => {
                sleep(time).await;
                work.await
            }
            Mishap::Fails => Err(DriverError::unavailable("bad weather").not_applied()),
            Mishap::FailsAfter => {
                work.await?;
                Err(DriverError::internal("bad weather after all was done"))
            }
            Mishap::HangsAfter => {
                work.await?;
                self.trace.note(&self.name, format_args!("{verb} hangs with its work done"));
                std::future::pending().await
            }
            Mishap::Hangs => {
                self.trace.note(&self.name, format_args!("{verb} hangs"));
                std::future::pending().await
            }
        }
    }

    /// Does `work` long after this call was given up: the cloud has taken the request and goes on with
    /// it, whatever becomes of who asked.
    async fn late<T>(
        &self,
        verb: &'static str,
        time: Duration,
        work: impl FnOnce() + Send + 'static,
    ) -> T {
        let (trace, name, oracle) = (self.trace.clone(), self.name.clone(), self.oracle.clone());
        tokio::spawn(async move {
            sleep(time).await;
            trace.note(&name, format_args!("{verb} takes effect late"));
            oracle.late(work);
        });
        self.trace.note(&self.name, format_args!("{verb} hangs, and will take effect"));
        std::future::pending().await
    }

    /// Whether the infrastructure does not see an instance yet of which it told. A driver that has the id does not make
    /// a second instance meanwhile.
    fn unseen(&self, uid: &str) -> Option<CloudInstance> {
        let now = self.fake.cloud().clock().now();
        let blind = BLIND.saturating_sub(self.oracle.tolerance());
        let made = self.instance(uid).filter(|it| !it.is_older(blind, now))?;
        (self.oracle.knows(uid, &made.provider_id) && self.sky.blind()).then_some(made)
    }

    /// Whether a search does not find the instance of this UID yet.
    fn hides(&self, uid: &str) -> bool {
        let now = self.fake.cloud().clock().now();
        let hidden = self.instance(uid).is_some_and(|it| self.search.hides(it.created_at, now));
        if hidden {
            self.trace.count("late search".to_owned());
        }
        hidden
    }

    /// The same of a group.
    fn hides_group(&self, uid: &str) -> bool {
        let now = self.fake.cloud().clock().now();
        let groups = self.fake.cloud().groups(|_| true).unwrap_or_default();
        let group = groups.into_iter().find(|it| it.group.identity.pool_uid == uid);
        group.is_some_and(|it| self.search.hides(it.group.created_at, now))
    }

    fn lies(&self, lie: Lie) -> bool {
        let strikes = self.sky.lie() == Some(lie);
        if strikes {
            self.trace.note(&self.name, format_args!("lies: {lie:?}"));
            self.trace.count(format!("lie {lie:?}"));
        }
        strikes
    }

    /// The fake driver's instance for a create.
    async fn wanted(&self, request: &CreateMachine) -> Result<NewInstance, DriverError> {
        let (ctx, class) = (&request.ctx, request.ctx.class().await?);
        let identity = ctx.identity();
        let own = identity.tags();
        Ok(NewInstance {
            identity,
            class: ctx.class_name().unwrap_or_default().to_owned(),
            spec: serde_json::from_str(&class.provider_spec_json)
                .map_err(|error| DriverError::invalid_argument(error.to_string()).not_applied())?,
            identity_tags: request.tags.clone().into_iter().chain(own).collect(),
            bootstrap: Bootstrap::read(request.user_data()),
            previous: request.provider_id.clone(),
            by_name: None,
            previous_clusters: ctx.previous_cluster_ids().to_vec(),
        })
    }

    /// An update that comes as far as the first resource.
    async fn half(&self, request: &UpdateMachine) -> Result<Updated, DriverError> {
        let class = request.ctx.class().await?;
        let spec: ProviderSpec = serde_json::from_str(&class.provider_spec_json)
            .map_err(|error| DriverError::invalid_argument(error.to_string()).not_applied())?;
        let [first, ..] = Resource::ALL;
        let cloud = self.fake.cloud();
        drop(cloud.bring_tags(&request.provider_id, first, spec.tags.of(first)));
        Err(DriverError::internal("bad weather in the middle").partial())
    }

    /// An old list, if the weather is so.
    fn aged(&self, list: Vec<Instance>) -> Vec<Instance> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.sky.stale().then(|| lists.first().cloned()).flatten();
        lists.push(list.clone());
        if lists.len() > OLD_LISTS {
            lists.remove(0);
        }
        old.unwrap_or(list)
    }

    /// The cloud takes no more calls for a while.
    fn throttled(&self) -> Result<(), DriverError> {
        if !self.sky.full() {
            return Ok(());
        }
        let error = DriverError::resource_exhausted("too many calls").reason("THROTTLED");
        Err(error.retry_after(Duration::from_secs(5)).not_applied())
    }

    fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn instance(&self, uid: &str) -> Option<CloudInstance> {
        let all = self.fake.cloud().instances().unwrap_or_default();
        all.into_iter().find(|it| it.identity.machine_uid == uid)
    }

    fn another(&self, mut of: CloudInstance) {
        of.provider_id.push_str("-again");
        drop(self.fake.cloud().plant(vec![of]));
    }

    fn delete_foreign(&self) {
        let all = self.fake.cloud().instances().unwrap_or_default();
        let foreign = all.into_iter().find(|it| it.identity.cluster_id == ELSEWHERE);
        if let Some(foreign) = foreign {
            drop(self.fake.cloud().stop(Lookup::of(&foreign.identity)));
        }
    }
}

impl Driver for SimDriver {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.provider)
            .name("sim")
            .version("1")
            .max_in_flight(16)
            // By the clock of a core that is wrong, that time is over sooner.
            .list_lag(self.search.lag() + self.oracle.tolerance())
            .knows_previous_cluster_ids()
            .offering([
                OptionalOperation::InitializeMachine,
                OptionalOperation::UpdateMachine,
                OptionalOperation::GetVolumeIds,
                OptionalOperation::ValidateClass,
            ])
            .offering(POOLS.into_iter().filter(|_| self.pools))
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            let target = ctx.target().clone();
            let before = self.instance(&target.uid);
            if before.is_none() && self.sky.full() {
                return Err(DriverError::resource_exhausted("there is no room").not_applied());
            }
            if self.lies(Lie::Made) {
                return Ok(Instance::new(format!("fake:///r/nothing-{}", target.uid)));
            }
            if let Some(time) = self.sky.late() {
                let (cloud, new) = (self.fake.cloud().clone(), self.wanted(&request).await?);
                return self.late("CreateMachine", time, move || drop(cloud.create(&new))).await;
            }
            if let Some(before) = self.unseen(&target.uid) {
                self.another(before.clone());
                return Ok(Instance::new(format!("{}-again", before.provider_id)));
            }
            // What the answer is about is what was fetched before: afterwards the link may be gone.
            let class = ctx.class().await?;
            let made = self.fake.create_machine(request).await?;
            if let Some(before) = before.filter(|_| self.breaks(Mutation::CreateTwice)) {
                self.another(before);
            }
            self.oracle.applied(&target.uid, &class.provider_spec_json);
            Ok(made)
        };
        Box::pin(self.call("CreateMachine", &ctx, work)).await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            if self.breaks(Mutation::DeleteLies) {
                return Ok(Deletion::Deleted);
            }
            if self.lies(Lie::Gone) {
                let left = self.instance(&ctx.target().uid);
                if let Some(left) = left {
                    self.oracle.lied(&left.provider_id);
                }
                return Ok(Deletion::Deleted);
            }
            if let Some(time) = self.sky.late() {
                let (cloud, identity) = (self.fake.cloud().clone(), ctx.identity());
                let before = ctx.previous_cluster_ids().to_vec();
                let by_identity = move || {
                    let lookup = Lookup { previous_clusters: &before, ..Lookup::of(&identity) };
                    drop(cloud.stop(lookup).and_then(|it| cloud.remove(&it.doomed)));
                };
                return self.late("DeleteMachine", time, by_identity).await;
            }
            if self.breaks(Mutation::DeleteForeign) {
                self.delete_foreign();
            }
            if request.provider_id.is_none() && self.hides(&ctx.target().uid) {
                return Ok(Deletion::WasAbsent);
            }
            self.fake.delete_machine(request).await
        };
        Box::pin(self.call("DeleteMachine", &ctx, work)).await
    }

    async fn get_machine_status(&self, request: GetMachineStatus) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            if self.breaks(Mutation::StatusLies) || self.lies(Lie::Unknown) {
                return Err(DriverError::not_found("no call looked"));
            }
            let searches = request.provider_id.is_none();
            if self.unseen(&ctx.target().uid).is_some() || searches && self.hides(&ctx.target().uid)
            {
                return Err(DriverError::not_found("not yet"));
            }
            self.fake.get_machine_status(request).await
        };
        Box::pin(self.call("GetMachineStatus", &ctx, work)).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        let ctx = request.ctx.clone();
        let list =
            Box::pin(self.call("ListMachines", &ctx, self.fake.list_machines(request))).await?;
        Ok(if self.lies(Lie::Empty) { Vec::new() } else { self.aged(list) })
    }

    async fn initialize_machine(
        &self,
        request: InitializeMachine,
    ) -> Result<Instance, DriverError> {
        let ctx = request.ctx.clone();
        Box::pin(self.call("InitializeMachine", &ctx, self.fake.initialize_machine(request))).await
    }

    async fn update_machine(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            if self.sky.half() {
                return self.half(&request).await;
            }
            let class = ctx.class().await?;
            let updated = if self.breaks(Mutation::UpdateLies) {
                Updated::default()
            } else {
                self.fake.update_machine(request).await?
            };
            self.oracle.applied(&ctx.target().uid, &class.provider_spec_json);
            Ok(updated)
        };
        Box::pin(self.call("UpdateMachine", &ctx, work)).await
    }

    async fn get_volume_ids(&self, request: GetVolumeIds) -> Result<Vec<String>, DriverError> {
        let ctx = request.ctx.clone();
        Box::pin(self.call("GetVolumeIds", &ctx, self.fake.get_volume_ids(request))).await
    }

    async fn validate_class(&self, request: ValidateClass) -> Result<ClassReview, DriverError> {
        self.fake.validate_class(request).await
    }

    async fn create_pool(&self, request: CreatePool) -> Result<Pool, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            self.throttled()?;
            self.fake.create_pool(request).await
        };
        Box::pin(self.call("CreatePool", &ctx, work)).await
    }

    async fn update_pool(&self, request: UpdatePool) -> Result<Pool, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            self.throttled()?;
            self.fake.update_pool(request).await
        };
        Box::pin(self.call("UpdatePool", &ctx, work)).await
    }

    async fn delete_pool(&self, request: DeletePool) -> Result<Deletion, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            if request.provider_id.is_none() && self.hides_group(&ctx.target().uid) {
                return Ok(Deletion::WasAbsent);
            }
            self.fake.delete_pool(request).await
        };
        Box::pin(self.call("DeletePool", &ctx, work)).await
    }

    async fn get_pool_status(&self, request: GetPoolStatus) -> Result<PoolStatus, DriverError> {
        let ctx = request.ctx.clone();
        let work = async {
            if request.provider_id.is_none() && self.hides_group(&ctx.target().uid) {
                return Err(DriverError::not_found("not yet"));
            }
            self.fake.get_pool_status(request).await
        };
        Box::pin(self.call("GetPoolStatus", &ctx, work)).await
    }

    async fn list_pools(&self, request: ListPools) -> Result<Vec<Pool>, DriverError> {
        let (ctx, began) = (request.ctx.clone(), Instant::now());
        let list = Box::pin(self.call("ListPools", &ctx, self.fake.list_pools(request))).await?;
        let groups = self.fake.cloud().groups(|cluster| cluster != ELSEWHERE).unwrap_or_default();
        let uids = groups.iter().map(|it| it.group.identity.pool_uid.as_str());
        self.oracle.groups_shown(uids, began);
        Ok(list)
    }

    async fn delete_pool_machines(
        &self,
        request: DeletePoolMachines,
    ) -> Result<PoolMachinesDeleted, DriverError> {
        let ctx = request.ctx.clone();
        let work = self.fake.delete_pool_machines(request);
        Box::pin(self.call("DeletePoolMachines", &ctx, work)).await
    }

    async fn update_pool_machine(
        &self,
        request: UpdatePoolMachine,
    ) -> Result<PoolInstance, DriverError> {
        let ctx = request.ctx.clone();
        if request.drained {
            self.oracle.remade(&request.instance);
        }
        let work = self.fake.update_pool_machine(request);
        Box::pin(self.call("UpdatePoolMachine", &ctx, work)).await
    }
}
