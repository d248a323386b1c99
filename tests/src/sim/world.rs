//! The world: all participants, and the events that hit them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_api::machine::Machine;
use ostler_api::{MachineDeployment, MachinePool, MachineReserve, MachineSet};
use ostler_apiserver::serve::{ApiServer, LocalService, Options as ApiOptions};
use ostler_driver_fake::cloud::{Clock, Cloud, Listener};
use tokio::time::{Instant, sleep, sleep_until};

use super::api::Front;
use super::checks;
use super::dice::Dice;
use super::groups::rules::controller;
use super::groups::{Group, MEMBERS, Wish, agents};
use super::liar;
use super::mutation::Mutation;
use super::network::Network;
use super::oracle::Oracle;
use super::parts::{self, Order, Part};
use super::plan::{CLASSES, Party, Plan, What};
use super::pools;
use super::reserves;
use super::search::Search;
use super::trace::Trace;
use super::users::{self, Users};
use super::weather::Sky;

/// The providers of a world, each with a cloud of its own.
pub const PROVIDERS: [&str; 2] = ["fake.ostler.dev", "second.ostler.dev"];
/// The tokens of their drivers.
pub const TOKENS: [&str; 2] = ["a token of the first", "a token of the second"];

/// Cores at most.
const CORES: usize = 3;
/// After how much silence a Node is not Ready, as Kubernetes has it.
const NODE_MONITOR_GRACE: Duration = Duration::from_secs(40);

/// The shared parts of a world.
#[derive(Debug)]
pub struct Surroundings {
    /// What goes wrong.
    pub sky: Sky,
    /// Delays of the clouds' searches.
    pub search: Search,
    /// What happened.
    pub trace: Trace,
    /// Who judges.
    pub oracle: Oracle,
    /// Links between drivers and cores.
    pub network: Network,
    /// The clouds, one a provider.
    pub clouds: Vec<Cloud>,
    /// The safety measure that is missing.
    pub mutation: Option<Mutation>,
    /// Whether drivers have groups.
    pub pools: bool,
    /// By how many milliseconds the clock of each core is wrong.
    skews: [AtomicI64; CORES],
    epoch: (Timestamp, Instant),
    api: LocalService,
}

impl Surroundings {
    /// A way to the API server.
    pub fn front(&self, name: &str, party: Option<Party>) -> Front {
        Front {
            name: name.to_owned(),
            party,
            sky: self.sky.clone(),
            trace: self.trace.clone(),
            oracle: self.oracle.clone(),
            api: self.api.clone(),
            mutation: self.mutation.filter(|_| matches!(party, Some(Party::Core(_)))),
            on_write: None,
        }
    }

    /// The clock of a core.
    pub fn clock(self: &Arc<Self>, core: u8) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let ((epoch, start), around) = (self.epoch, Arc::clone(self));
        Arc::new(move || {
            let skew = around.skews[usize::from(core) % CORES].load(Ordering::Relaxed);
            epoch + start.elapsed() + SignedDuration::from_millis(skew)
        })
    }
}

/// How soon the world looks whether a pod has to come back.
const BACK_AFTER: Duration = Duration::from_millis(1_300);
/// How often an operator looks whether orphans are held.
const OPERATOR_LOOKS: Duration = Duration::from_mins(1);

/// Everything that takes part.
#[expect(missing_debug_implementations, reason = "users cannot be shown")]
pub struct World {
    /// The shared parts of the world.
    pub around: Arc<Surroundings>,
    /// Users.
    pub users: Users,
    plan: Plan,
    cores: Vec<Part>,
    drivers: Vec<Part>,
    pod_rounds: usize,
    visits: u64,
    workload: bool,
    _api: ApiServer,
}

impl World {
    /// Starts all that the plan names.
    ///
    /// # Panics
    /// If the API server does not open.
    pub async fn start(plan: Plan, trace: Trace) -> Self {
        let epoch = Timestamp::constant(1_767_225_600, 0);
        let start = trace.start();
        let options =
            ApiOptions { clock: Arc::new(move || epoch + start.elapsed()), ..ApiOptions::memory() };
        let api = ApiServer::open(options).await.expect("the API server opens");
        let sky = Sky::new(Dice::new(plan.seed.rotate_left(17)));
        let oracle = Oracle::new(trace.clone(), epoch, &plan);
        let clouds = (0..PROVIDERS.len())
            .map(|_| Cloud::in_memory(Clock::new(move || epoch + start.elapsed())));
        let around = Arc::new(Surroundings {
            network: Network::new(sky.clone()),
            sky,
            search: Search::of(plan.seed),
            trace,
            oracle,
            clouds: clouds.collect(),
            mutation: plan.mutation,
            pools: plan.has_pools(),
            skews: std::array::from_fn(|_| AtomicI64::new(0)),
            epoch: (epoch, start),
            api: api.local_service(),
        });
        let users = Users::new(around.front("users", None).client());
        users.prepare().await;
        if plan.has_pools() {
            users.prepare_pools().await;
        }
        for (number, cloud) in around.clouds.iter().enumerate() {
            // Of another cluster, and none of its business.
            cloud.seed(pools::ELSEWHERE, 2).expect("a cloud in memory has no journal");
            if plan.has_orphan_groups() {
                pools::orphans::elsewhere(cloud);
            }
            for instance in cloud.instances().expect("a cloud in memory has no journal") {
                around.oracle.foreign(&instance);
            }
            let (oracle, name) = (around.oracle.clone(), format!("cloud-{number}"));
            cloud.tell(Listener::new(move |record, before| oracle.cloud(&name, record, before)));
            parts::kubelets(&around, cloud.clone(), number);
        }
        if plan.updates_in_place() {
            agents::start(&users, plan.seed);
        }
        let core = |number| parts::core(&around, number, plan.controllers());
        let cores = (0..plan.cores).map(core).collect();
        let replicas = (0..plan.drivers).map(|number| (number, 0));
        let drivers = replicas
            .chain([(plan.drivers, 1)])
            .map(|(number, provider)| parts::driver(&around, number, provider))
            .collect();
        Self {
            around,
            users,
            plan,
            cores,
            drivers,
            pod_rounds: 0,
            visits: 0,
            workload: false,
            _api: api,
        }
    }

    /// Lets everything happen that the plan says, each at its time.
    pub async fn live(&mut self) {
        for step in self.plan.steps.clone() {
            sleep_until(self.around.trace.start() + Duration::from_millis(step.at)).await;
            self.around.trace.note("PLAN", format_args!("{:?}", step.what));
            self.cover(&step.what);
            self.happen(&step.what).await;
        }
    }

    /// All faults end, and users release their holds.
    pub async fn heal(&mut self) {
        self.around.trace.note("PLAN", "all faults end");
        self.around.sky.clear();
        self.cores.iter().chain(&self.drivers).for_each(|part| part.trap(-1, Duration::ZERO));
        self.around.skews.iter().for_each(|skew| skew.store(0, Ordering::Relaxed));
        self.users.release().await;
        for life in self.around.oracle.lives().into_values() {
            self.users.pause(&life.name, false).await;
        }
        self.forget_nodes_of_lies();
        self.release_groups().await;
        if self.plan.has_checks() {
            self.users.calm_checks().await;
        }
        if self.plan.has_pools() {
            pools::orphans::clean_up(&self.users, &self.around);
        }
        // Machines that were there before the first core wrote the cluster id down are a reason to report
        // orphans only, until an operator has seen them: `ostler drivers orphans --accept`.
        let users = self.users.clone();
        tokio::spawn(async move {
            loop {
                users.accept_orphans().await;
                sleep(OPERATOR_LOOKS).await;
            }
        });
    }

    /// Rollouts go on, and nobody wants machines any more that never join, now or before.
    async fn release_groups(&self) {
        if !self.plan.has_groups() {
            return;
        }
        for deployment in self.users.all::<MachineDeployment>().await {
            let name = deployment.name().trim_start_matches('f');
            let Ok(fleet) = name.parse() else { continue };
            self.users.forget_wishes(fleet).await;
            let now: Option<MachineDeployment> = self.users.get(deployment.name()).await;
            let class = now.map(|it| it.spec.template.spec.class.name).unwrap_or_default();
            if !(0..CLASSES).any(|it| users::class_name(it) == class && users::joins(it)) {
                self.users.roll(fleet, 0, 0).await;
            }
        }
        // What a deployment left behind is nobody's wish any more: it may never create, or be of any class.
        for set in self.users.all::<MachineSet>().await {
            if set.name().starts_with('f') && controller(&set.metadata).is_none() {
                self.users.delete_by_name::<MachineSet>(set.name()).await;
            }
        }
        if self.plan.updates_in_place() {
            agents::finish(&self.users);
        }
    }

    /// Everything is deleted: first what would make machines anew.
    pub async fn delete_all(&self) {
        for reserve in self.users.all::<MachineReserve>().await {
            self.users.delete_by_name::<MachineReserve>(reserve.name()).await;
        }
        for deployment in self.users.all::<MachineDeployment>().await {
            self.users.delete_by_name::<MachineDeployment>(deployment.name()).await;
        }
        for set in self.users.all::<MachineSet>().await {
            self.users.delete_by_name::<MachineSet>(set.name()).await;
        }
        if self.plan.has_pools() {
            for pool in self.users.all::<MachinePool>().await {
                self.users.delete_by_name::<MachinePool>(pool.name()).await;
            }
        }
        for life in self.around.oracle.lives().into_values() {
            self.users.delete(&life.name).await;
        }
    }

    /// Counts pairs of state and fault.
    fn cover(&self, what: &What) {
        let Some(fault) = what.fault() else { return };
        let lives = self.around.oracle.lives();
        for life in lives.values() {
            let status = life.machine.status.as_ref();
            let step = status.and_then(|status| status.step.as_ref());
            let phase = life.machine.phase();
            let state = match step {
                Some(step) => step.as_str().to_owned(),
                None if phase.as_str().is_empty() => "New".to_owned(),
                None => phase.as_str().to_owned(),
            };
            self.around.trace.count(format!("{state} x {fault}"));
        }
    }

    async fn happen(&mut self, what: &What) {
        let millis = Duration::from_millis;
        match *what {
            What::Create { machine, class } => self.users.create(machine, class).await,
            What::Delete { machine } => self.users.delete(&self.name(machine)).await,
            What::Force { machine } => {
                let patch =
                    serde_json::json!({ "metadata": { "labels": { "force-deletion": "True" } } });
                self.users.patch_machine(&self.name(machine), patch).await;
                self.users.delete(&self.name(machine)).await;
            }
            What::Edit { class, version } => self.users.edit(class, version).await,
            What::Cordon { machine, on } => self.users.cordon(&self.name(machine), on).await,
            What::Pause { machine, on } => self.users.pause(&self.name(machine), on).await,
            What::Pods { machine, count, grace, held } => {
                self.pod_rounds += 1;
                let node = self.name(machine);
                self.users.pods(&node, count, grace, held, self.pod_rounds).await;
            }
            What::Workload { pods } => self.workload(pods),
            What::Release => self.users.release().await,
            What::TearAway { machine } => self.tear_away(machine).await,
            What::TypedPut { machine, delete } => self.typed_put(machine, delete).await,
            What::OldFile { machine } => self.old_file(machine).await,
            What::Vanish { machine } => self.vanish(machine),
            What::Group(wish) => self.group(wish).await,
            What::Pool(wish) => pools::users::happen(self, wish).await,
            What::Check(wish) => checks::users::happen(self, wish).await,
            What::Reserve(wish) => reserves::happen(self, wish).await,
            What::CrashCore { core, down, writes } => {
                let Some(part) = self.cores.get(usize::from(core) % self.cores.len()) else {
                    return;
                };
                match writes {
                    None => part.order(Order::Kill(millis(down))),
                    Some(writes) => part.trap(writes.into(), millis(down)),
                }
            }
            What::StopCore { core, down } => {
                let part = &self.cores[usize::from(core) % self.cores.len()];
                part.order(Order::Stop(millis(down)));
            }
            What::CrashDriver { driver, down, during } => {
                let part = &self.drivers[usize::from(driver) % self.drivers.len()];
                match during {
                    None => part.order(Order::Kill(millis(down))),
                    Some(after) => part.trap(1 + i64::from(after), millis(down)),
                }
            }
            What::StopDriver { driver, down } => {
                self.drivers[usize::from(driver) % self.drivers.len()]
                    .order(Order::Stop(millis(down)));
            }
            What::FalseHello { provider } => {
                self.visits += 1;
                let dice = Dice::new(self.plan.seed.rotate_left(31) ^ self.visits);
                liar::send(&self.around, usize::from(provider) % PROVIDERS.len(), dice);
            }
            What::Cut => self.around.network.cut(),
            What::Skew { core, millis } => {
                let core = usize::from(core) % CORES;
                self.around.skews[core].store(millis, Ordering::Relaxed);
            }
            What::CutWatches { party } => self.around.sky.cut_watches(party),
            What::Weather { kind, millis: time, percent } => {
                self.around.sky.begin(kind, millis(time), percent);
            }
        }
    }

    /// Carries out a wish about sets and deployments.
    async fn group(&self, wish: Wish) {
        match wish {
            Wish::Keep { group, replicas, class, rollout } => {
                self.users.keep(group, replicas, class, rollout).await;
            }
            Wish::Scale { group, replicas } => self.users.scale(group, replicas).await,
            Wish::Roll { fleet, class, version } => self.users.roll(fleet, class, version).await,
            Wish::RollBack { fleet } => self.users.roll_back(fleet).await,
            Wish::Hold { fleet, on } => self.users.hold(fleet, on).await,
            Wish::Delete { group, orphan } => self.users.delete_group(group, orphan).await,
            Wish::Select { fleet, machine } => {
                let of_fleet =
                    self.members(|it| it.label("app") == Some(&Group::Fleet(fleet).name()));
                if let Some(node) = nth(&of_fleet, machine) {
                    self.users.select_node(node).await;
                }
            }
            Wish::Mark { fleet, machine } => {
                let now = self.around.epoch.0 + self.around.trace.elapsed();
                let of_fleet =
                    self.members(|it| it.label("app") == Some(&Group::Fleet(fleet).name()));
                if let Some(name) = nth(&of_fleet, machine) {
                    self.users.mark(fleet, name, now).await;
                }
            }
            Wish::Relabel { machine, on: false } => {
                self.users.relabel(&self.name(machine), None).await;
            }
            Wish::Relabel { machine, on: true } => {
                let free =
                    self.members(|it| it.label("name").is_some() && it.label("app").is_none());
                if let Some(name) = nth(&free, machine) {
                    let lives = self.around.oracle.lives().into_values();
                    let found = lives.map(|it| it.machine).find(|it| it.name() == name);
                    let label = found.as_ref().and_then(|it| it.label("name"));
                    self.users.relabel(name, label).await;
                }
            }
            Wish::TypedPut { group } => self.users.put_group_as_upstream(group).await,
        }
    }

    /// Names of the machines with this property.
    fn members(&self, is_one: impl Fn(&Machine) -> bool) -> Vec<String> {
        let lives = self.around.oracle.lives().into_values();
        let mut names: Vec<_> = lives.filter(|it| is_one(&it.machine)).map(|it| it.name).collect();
        names.sort();
        names
    }

    /// The name of a machine of a plan. A machine of a set without machines has a name that does not exist.
    fn name(&self, machine: u8) -> String {
        if machine < MEMBERS {
            return users::machine_name(machine);
        }
        let members = self.members(|it| controller(&it.metadata).is_some() && !it.has_pool());
        nth(&members, machine).cloned().unwrap_or_else(|| "nobody".to_owned())
    }

    async fn typed_put(&self, machine: u8, delete: bool) {
        let name = self.name(machine);
        if delete {
            self.users.delete(&name).await;
        }
        self.users.put_as_upstream(&name).await;
    }

    /// Keeps so many pods, which come back under their names as those of a `StatefulSet` do.
    fn workload(&mut self, pods: u8) {
        if std::mem::replace(&mut self.workload, true) {
            return;
        }
        let (users, around) = (self.users.clone(), Arc::clone(&self.around));
        tokio::spawn(async move {
            loop {
                for name in (0..pods).map(|number| format!("db-{number}")) {
                    let Some(node) = around.oracle.room(&name, around.sky.dice()) else { continue };
                    users.pod(&name, &node, 20).await;
                }
                sleep(BACK_AFTER).await;
            }
        });
    }

    /// A user has had enough of a machine. What it leaves behind is for the core to find, but for its Node:
    /// that goes once the instance is gone, as it does wherever a cloud controller manager runs.
    async fn tear_away(&self, machine: u8) {
        let name = self.name(machine);
        let Some(uid) = self.uid_of(&name) else { return };
        self.users.delete(&name).await;
        let patch = serde_json::json!({ "metadata": { "finalizers": null } });
        self.users.patch_machine(&name, patch).await;
        self.forget_nodes_of(uid);
    }

    /// What is deleted before the core has seen that the finalizer is gone leaves its instance behind, too.
    async fn old_file(&self, machine: u8) {
        let name = self.name(machine);
        let Some(uid) = self.uid_of(&name) else { return };
        self.users.put_old_file(&name).await;
        self.forget_nodes_of(uid);
    }

    fn uid_of(&self, name: &str) -> Option<String> {
        let mut lives = self.around.oracle.lives().into_iter();
        lives.find(|(_, life)| life.name == name).map(|(uid, _)| uid)
    }

    /// What a cloud controller manager does about the Nodes of instances that are gone, once the Machine is gone
    /// too: a Machine whose Node is deleted goes with it.
    fn forget_nodes_of(&self, uid: String) {
        let (users, oracle) = (self.users.clone(), self.around.oracle.clone());
        tokio::spawn(async move {
            loop {
                sleep(NODE_MONITOR_GRACE).await;
                if !oracle.lives().contains_key(&uid) {
                    users.forget_nodes(&oracle.gone(&uid)).await;
                }
            }
        });
    }

    /// The same for Machines whose drivers reported their instances as gone.
    fn forget_nodes_of_lies(&self) {
        let (users, oracle) = (self.users.clone(), self.around.oracle.clone());
        tokio::spawn(async move {
            loop {
                sleep(NODE_MONITOR_GRACE).await;
                users.forget_nodes(&oracle.lied_about()).await;
            }
        });
    }

    /// The kubelet of this instance is silent from now on, which the controller of Nodes notices.
    pub(super) fn falls_silent(&self, node: &str, instance: &str) {
        let (users, oracle) = (self.users.clone(), self.around.oracle.clone());
        let (node, instance) = (node.to_owned(), instance.to_owned());
        tokio::spawn(async move {
            sleep(NODE_MONITOR_GRACE).await;
            users.node_unknown(&node, &instance, oracle.now()).await;
        });
    }

    /// A user deletes the instance of a machine with the tools of the cloud.
    fn vanish(&self, machine: u8) {
        let name = self.name(machine);
        for cloud in &self.around.clouds {
            let all = cloud.instances().expect("a cloud in memory has no journal");
            let ours = all.into_iter().filter(|it| it.identity.machine_name == name);
            for instance in ours {
                self.around.oracle.by_hand(&instance);
                self.falls_silent(&name, &instance.provider_id);
                cloud.remove(&[instance.provider_id]).expect("a cloud in memory has no journal");
            }
        }
    }
}

/// The name at `number`, modulo the length.
fn nth(names: &[String], number: u8) -> Option<&String> {
    let at = usize::from(number).checked_rem(names.len())?;
    names.get(at)
}
