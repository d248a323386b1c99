//! Wires everything together: watches, leadership, workers.

mod kinds;
mod lease_events;
mod pools;
mod scaler;
mod sets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource};
use ostler_api::names::LEADER_LEASE;
use ostler_api::operation::Term;
use ostler_api::{Machine, MachinePool};
use ostler_sessions::{OrphanDesk, Sessions};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::REPORTER;
use crate::api_health::{ApiHealth, Probes};
use crate::bootstrap::Configs;
use crate::class::{Classes, Secrets};
use crate::client::{WriteMetrics, Writer};
use crate::clock::{Clock, DebugClock};
use crate::cluster_id::ids_of;
use crate::controllers::Controller;
use crate::deployment::register_deployments;
use crate::election::{ElectionError, Leadership, Observed};
use crate::events::{EventMetrics, EventWriter, Recorder};
use crate::fleet::{Fleet, Tools};
use crate::health_check::{CheckMetrics, HealthChecks, register_checks};
use crate::hints::Listener;
use crate::home::Home;
use crate::hot_update::Reviewer;
use crate::kind;
use crate::machine::{Machines, State, register_machines};
use crate::metrics::{
    AnswerMetrics, Leases, ReconcileMetrics, SetMetrics, StepMetrics, register_sets,
};
use crate::orphans::{OrphanAdmin, OrphanAdminParts, OrphanMetrics, Orphans};
use crate::queue::QueueMetrics;
use crate::reserve::register_reserves;
use crate::schemas::Schemas;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::target::Targets;
use crate::triggers::AllTriggers;
use crate::unmanaged_nodes::UnmanagedNodes;
use crate::watch::WatchMetrics;
use crate::watching::{SessionFollower, TargetController, Watches};
use kinds::Kinds;
use lease_events::LeaseEvents;
use sets::SetLeader;

/// Time limit of a new leader for reading the operations in flight from the API; its cache has nearly all of them.
const INHERIT: Duration = Duration::from_secs(10);
/// Page size of the read, so that the API server never encodes all machines in one response.
const PAGE: u32 = 500;
/// Time for running reconciles to finish when this core stops, before the sessions end. A pass takes milliseconds,
/// unless the API server is slow or a driver lists instances. Together with the wait for the drivers' last answers
/// this is half of the time after which a core is killed.
const LAST_WORK: Duration = Duration::from_secs(5);
/// Time for the workers left once the sessions have ended. Workers still running then wait for the API server.
const LAST_MOMENT: Duration = Duration::from_secs(2);
/// All controllers of a core.
#[derive(Debug)]
pub struct Controllers {
    core: Core,
    events: EventWriter,
}

struct Core {
    client: Client,
    stores: Stores,
    sessions: Sessions,
    settings: Arc<Settings>,
    clock: Clock,
    writer: Writer,
    recorder: Recorder,
    kinds: Arc<Kinds>,
    configs: Arc<Configs>,
    all: AllTriggers,
    state: Arc<State>,
    api_health: Arc<ApiHealth>,
    schemas: Arc<Schemas>,
    watch_metrics: WatchMetrics,
    reconcile_metrics: ReconcileMetrics,
    answer_metrics: AnswerMetrics,
    orphan_metrics: OrphanMetrics,
    admin: OrphanAdmin,
    step_metrics: StepMetrics,
    set_metrics: SetMetrics,
    check_metrics: CheckMetrics,
    leading: channel::Sender<Option<Term>>,
    leases: Leases,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Controllers {
    /// Creates controllers that start with [`Self::run`], and registers their metrics in `registry`.
    ///
    /// `client` must not retry by itself (`Config::default_retry = false`): a refused eviction would occupy a worker
    /// for as long as a PodDisruptionBudget refuses. `stores` must be the source of the sessions'
    /// [classes](crate::StoreClassSource).
    pub fn new(
        client: Client,
        stores: Stores,
        sessions: Sessions,
        settings: Settings,
        clock: Clock,
        registry: &mut Registry,
    ) -> Self {
        let (settings, state) = (Arc::new(settings), Arc::new(State::of(&stores.machines)));
        let counted = EventMetrics::register(registry);
        let (recorder, events) = Recorder::new(
            client.clone(),
            (REPORTER, &settings.identity),
            Arc::clone(&clock),
            counted,
        );
        let watch_metrics = WatchMetrics::register(registry);
        let queues = QueueMetrics::register(registry);
        let home = Arc::new(settings.home_namespace(client.clone()));
        let others = (&sessions, &recorder, &home);
        let kinds = Arc::new(Kinds::new(&queues, &stores, &settings, &state, others));
        let queues = kinds.booted();
        let watches = watch_metrics.clone();
        let configs = Configs::new(client.clone(), stores.clone(), queues, watches, registry);
        let configs = Arc::new(configs);
        let leases = Leases::register(registry);
        register_machines(registry, &stores, &state, &leases.machines);
        register_deployments(registry, &stores, &leases.sets);
        register_reserves(registry, &stores, &leases.sets);
        let admin = OrphanAdminParts {
            home,
            writer: Writer::new(client.clone(), WriteMetrics::register(registry)),
            stores: stores.clone(),
            sessions: sessions.clone(),
            settings: Arc::clone(&settings),
            clock: Arc::clone(&clock),
            recorder: recorder.clone(),
            scans: kinds.scans.own.clone(),
        };
        let core = Core {
            writer: admin.writer.clone(),
            admin: OrphanAdmin::new(admin, registry),
            watch_metrics,
            reconcile_metrics: ReconcileMetrics::register(registry),
            answer_metrics: AnswerMetrics::register(registry),
            orphan_metrics: OrphanMetrics::register(registry),
            step_metrics: StepMetrics::register(registry),
            set_metrics: register_sets(registry, &stores, &leases.sets),
            check_metrics: register_checks(registry, &stores, &leases.machines),
            leading: channel::Sender::new(None),
            leases,
            all: kinds.all(&configs, &stores),
            recorder,
            kinds,
            configs,
            client,
            stores,
            sessions,
            schemas: Schemas::register(registry, settings.controllers),
            api_health: Arc::new(ApiHealth::new(settings.api_check, Arc::clone(&clock), registry)),
            settings,
            clock,
            state,
        };
        Self { core, events }
    }

    /// Serves the commands about orphans.
    pub fn orphans(&self) -> Arc<dyn OrphanDesk> {
        Arc::new(self.core.admin.clone())
    }

    /// The term of this leader; `None` while not leading. Serve drivers only while this process leads: a core that
    /// stops leads until its sessions have ended.
    pub fn leadership(&self) -> channel::Receiver<Option<Term>> {
        self.core.leading.subscribe()
    }

    /// Runs until `stop`, then ends in order: no new work, running work, sessions, lease, events. An error means that
    /// leadership was lost: the process must end immediately.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, Result<(), ElectionError>> {
        Box::pin(self.run_until(stop))
    }

    async fn run_until(self, stop: CancellationToken) -> Result<(), ElectionError> {
        let Self { core, events } = self;
        core.stores.compare_ids_as(core.sessions.comparisons(), &core.settings);
        // Every process watches, so that the next leader starts with warm caches.
        let watches = core.start_watches();
        let all_recorded = CancellationToken::new();
        let events = tokio::spawn(events.run(all_recorded.clone()));
        let ended = if core.settings.controllers.run_machines() {
            Box::pin(core.lead(&stop)).await
        } else {
            Box::pin(core.lead_sets_alone(&stop)).await
        };
        if matches!(ended, Err(ElectionError::Restored { .. })) {
            core.admin.api_was_restored().await;
        }
        all_recorded.cancel();
        if let Err(failure) = events.await {
            warn!(error = %failure, "the event writer panicked");
        }
        drop(watches);
        ended
    }
}

impl Core {
    /// Waits until this process leads. Returns `None` if `stop` comes first, else also the observations of the sets'
    /// Lease meanwhile; an error if the process cannot lead any more.
    async fn acquire(
        &self,
        sets: &SetLeader,
        stop: &CancellationToken,
    ) -> Result<Option<(Leadership, Observed)>, ElectionError> {
        if stop.run_until_cancelled(self.stores.synced()).await.is_none() {
            return Ok(None);
        }
        info!(machines = self.stores.machines.len(), "synced");
        let election = self.settings.election(LEADER_LEASE);
        let elector =
            self.kinds.home.elector(self.client.clone(), election, Arc::clone(&self.clock));
        let mut sets_lease = Observed::default();
        let leadership = tokio::select! {
            leadership = elector.acquire(Observed::default(), stop) => leadership?,
            never = sets.observe(&mut sets_lease) => match never {},
        };
        Ok(leadership.map(|leadership| (leadership, sets_lease)))
    }

    async fn lead(&self, stop: &CancellationToken) -> Result<(), ElectionError> {
        let sets = self.sets();
        let Some((leadership, sets_lease)) = self.acquire(&sets, stop).await? else {
            return Ok(());
        };
        let _leads = self.leases.machines.begin();
        let (no_more_work, idle) = (CancellationToken::new(), CancellationToken::new());
        let term = leadership.term();
        let lease = leadership.lease_uid();
        let before = leadership.before();
        let held = leadership.hold(
            &idle,
            |until| self.sessions.lease_until(until),
            || self.writer.all_answered(),
        );
        tokio::pin!(held);
        tokio::select! {
            lost = &mut held => return lost,
            () = stop.cancelled() => {
                idle.cancel();
                return held.await;
            }
            () = self.inherit() => {}
        }
        self.sessions.lead(term);
        let mut workers = self.start_workers(term, lease, &no_more_work);
        self.start_pools(term, &mut workers, &no_more_work);
        self.start_checks(&mut workers, &no_more_work);
        self.hold_home(&mut workers, &no_more_work);
        if self.settings.controllers.run_sets() {
            workers.spawn(sets.follow(sets_lease, no_more_work.clone()));
        }
        workers.spawn(self.ask_api_servers(before, &no_more_work));
        workers.spawn(self.check_definitions(&no_more_work));
        self.leading.send_replace(Some(term));
        let ended = tokio::select! {
            lost = &mut held => {
                // Before anything else. Dropping the workers stops them in the middle of their work.
                self.sessions.stop();
                lost
            }
            () = self.finish(stop, &no_more_work, workers) => {
                idle.cancel();
                held.await
            }
        };
        self.leading.send_replace(None);
        ended
    }

    /// Reads what the previous core recorded last, before any driver may connect: a cache may lag, and operations of
    /// a driver that are not recorded are cancelled. If the read fails, the core uses the cache: then operations in
    /// flight may be cancelled, and are read before they are repeated.
    async fn inherit(&self) {
        match timeout(INHERIT, self.keep_intents()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(%error, "cannot read the operations in flight; using the watch caches");
            }
            Err(_) => {
                warn!("reading the operations in flight takes too long; using the watch caches");
            }
        }
    }

    async fn keep_intents(&self) -> kube::Result<()> {
        let inherited = &self.stores.inherited;
        self.read_all::<Machine>(|machines| inherited.keep(machines)).await?;
        match self.read_all::<MachinePool>(|pools| inherited.keep_pools(pools)).await {
            // Without the definition there are no pools.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            read => read,
        }
    }

    /// Reads all objects of a kind, page by page.
    async fn read_all<K>(&self, keep: impl Fn(Vec<K>)) -> kube::Result<()>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let kind = ApiResource::erase::<K>(&());
        for part in self.settings.namespaces.parts() {
            let api: Api<DynamicObject> = match part {
                Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &kind),
                None => Api::all_with(self.client.clone(), &kind),
            };
            let mut page = ListParams::default().limit(PAGE);
            loop {
                let found = api.list(&page).await?;
                // The watch reports an unreadable object.
                keep(found.items.into_iter().filter_map(|it| it.try_parse().ok()).collect());
                let Some(next) = found.metadata.continue_.filter(|next| !next.is_empty()) else {
                    break;
                };
                page = ListParams::default().limit(PAGE).continue_token(&next);
            }
        }
        Ok(())
    }

    /// Waits for `stop`, then stops everything that acts as the leader. First the running reconciles: their recorded
    /// operations are still sent, and the next core finds them with their drivers. Then the reads of drivers, and only
    /// then the sessions: the next core does not know of reads and would have them cancelled. The process leads until
    /// the sessions end.
    async fn finish(
        &self,
        stop: &CancellationToken,
        no_more_work: &CancellationToken,
        mut workers: JoinSet<()>,
    ) {
        stop.cancelled().await;
        no_more_work.cancel();
        let _in_time = timeout(LAST_WORK, all_ended(&mut workers)).await;
        self.sessions.finish().await;
        self.sessions.stop();
        // Workers waiting for a driver stop waiting now, and the worker of the sets may be giving up its Lease.
        let in_time = timeout(LAST_MOMENT, all_ended(&mut workers)).await.is_ok();
        // Aborts the workers still running.
        workers.shutdown().await;
        self.leading.send_replace(None);
        info!(in_time, "stopped");
    }

    fn start_workers(&self, term: Term, lease: String, stop: &CancellationToken) -> JoinSet<()> {
        for machine in self.stores.machines.all() {
            self.state.slots.take_over(&machine);
        }
        let kinds = &self.kinds;
        let reviewer = Arc::new(Reviewer::new(
            self.stores.clone(),
            self.sessions.clone(),
            Arc::clone(&self.settings),
            self.recorder.clone(),
            Arc::clone(&kinds.reviews),
            [&kinds.machines.queue, &kinds.classes.queue].map(Arc::clone),
        ));
        let Tools { writer, stores, sessions, settings, clock, recorder } = self.tools();
        let machines = Arc::new(Machines {
            writer,
            stores,
            sessions,
            settings,
            clock,
            recorder,
            state: Arc::clone(&self.state),
            configs: Arc::clone(&self.configs),
            answers: self.answer_metrics.clone(),
            scans: kinds.scans.own.clone(),
            left: kinds.pools.own.left.clone(),
            steps: self.step_metrics.clone(),
            term,
            api_health: Arc::clone(&self.api_health),
            schemas: Arc::clone(&self.schemas),
            reviewer: Arc::clone(&reviewer),
            queue: Arc::clone(&kinds.machines.queue),
        });
        let of_all = || (self.writer.clone(), self.stores.clone(), self.recorder.clone());
        let (writer, stores, recorder) = of_all();
        let (reviews, clock) = (Arc::clone(&reviewer), Arc::clone(&self.clock));
        let classes = Arc::new(Classes::new(writer, stores, reviews, recorder, clock));
        let (writer, stores, recorder) = of_all();
        let secrets = Arc::new(Secrets::new(writer, stores, recorder));
        let mut workers = JoinSet::new();
        let metrics = &self.reconcile_metrics;
        kind::work(machines, &kinds.machines.queue, metrics, &mut workers, stop);
        kind::work(classes, &kinds.classes.queue, metrics, &mut workers, stop);
        kind::work(secrets, &kinds.secrets.queue, metrics, &mut workers, stop);
        workers.spawn(Arc::clone(&kinds.reviews).run(stop.clone(), move |key| {
            let reviewer = Arc::clone(&reviewer);
            async move { reviewer.reconcile(key).await }
        }));
        self.collect_orphans(lease, &mut workers, stop);
        self.release_unmanaged_nodes(&mut workers, stop);
        let session_events = self.session_follower().follow(self.sessions.subscribe());
        let stop = stop.clone();
        workers.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = session_events => {}
            }
        });
        workers
    }

    fn tools(&self) -> Tools {
        Tools {
            writer: self.writer.clone(),
            stores: self.stores.clone(),
            sessions: self.sessions.clone(),
            settings: Arc::clone(&self.settings),
            clock: DebugClock(Arc::clone(&self.clock)),
            recorder: self.recorder.clone(),
        }
    }

    fn session_follower(&self) -> SessionFollower {
        let hints = Listener {
            hints: Arc::clone(&self.state.hints),
            stores: self.stores.clone(),
            settings: Arc::clone(&self.settings),
            sessions: self.sessions.clone(),
        };
        let (recorder, clock) = (self.recorder.clone(), Arc::clone(&self.clock));
        SessionFollower { all: self.all.clone(), hints, recorder, clock }
    }

    fn lease_events(&self) -> LeaseEvents {
        let home = Arc::clone(&self.kinds.home.own.namespace);
        LeaseEvents { all: self.all.clone(), recorder: self.recorder.clone(), home }
    }

    fn ask_api_servers(
        &self,
        before: Option<Timestamp>,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        // Each of several target clusters has its own check, started with its watches: a cluster's outage says nothing
        // about the others.
        let probes = Probes {
            control: Some(Api::namespaced(self.client.clone(), self.settings.probed())),
            targets: self
                .stores
                .targets
                .only()
                .iter()
                .map(|it| Api::all(it.client.clone()))
                .collect(),
        };
        let events = self.lease_events();
        let asked = Arc::clone(&self.api_health)
            .run(probes, before, move |transition| events.api_health(transition));
        let stop = stop.clone();
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = asked => {}
            }
        }
    }

    fn check_definitions(
        &self,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (events, stop) = (self.lease_events(), stop.clone());
        let on_change = move |outdated: Option<&str>| events.definitions(outdated);
        let checked = Arc::clone(&self.schemas).run(self.client.clone(), on_change);
        async move {
            stop.run_until_cancelled(checked).await;
        }
    }

    fn release_unmanaged_nodes(&self, workers: &mut JoinSet<()>, stop: &CancellationToken) {
        let nodes = Arc::new(UnmanagedNodes {
            writer: self.writer.clone(),
            stores: self.stores.clone(),
            settings: Arc::clone(&self.settings),
            clock: DebugClock(Arc::clone(&self.clock)),
            recorder: self.recorder.clone(),
            cluster: ids_of(&self.sessions),
        });
        let queue = &self.kinds.nodes.queue;
        kind::work(nodes, queue, &self.reconcile_metrics, workers, stop);
    }

    /// Holds the core's own objects while there is something to delete.
    fn hold_home(&self, workers: &mut JoinSet<()>, stop: &CancellationToken) {
        let kind = &self.kinds.home;
        let (writer, need) = (self.writer.clone(), kind.own.needs.follow());
        let home = Arc::new(Home { writer, need, namespace: Arc::clone(&kind.own.namespace) });
        kind::work(home, &kind.queue, &self.reconcile_metrics, workers, stop);
        kind.note();
        kind.wake();
        workers.spawn(Arc::clone(kind).follow(stop.clone()));
    }

    fn start_checks(&self, workers: &mut JoinSet<()>, stop: &CancellationToken) {
        if !self.settings.controllers.run(Controller::MachineHealthCheck) {
            return;
        }
        let checks = Fleet(Arc::new(HealthChecks {
            tools: self.tools(),
            api_health: Arc::clone(&self.api_health),
            metrics: self.check_metrics.clone(),
        }));
        let queue = &self.kinds.checks.queue;
        kind::work(Arc::new(checks), queue, &self.reconcile_metrics, workers, stop);
    }

    fn collect_orphans(&self, lease: String, workers: &mut JoinSet<()>, stop: &CancellationToken) {
        let scans = self.kinds.scans.own.clone();
        let queue = Arc::clone(&scans.queue);
        let orphans = Arc::new(Orphans {
            writer: self.writer.clone(),
            stores: self.stores.clone(),
            sessions: self.sessions.clone(),
            settings: Arc::clone(&self.settings),
            recorder: self.recorder.clone(),
            metrics: self.orphan_metrics.clone(),
            scans,
            admin: self.admin.clone(),
            lease,
            ledgers: Mutex::default(),
        });
        kind::work(orphans, &queue, &self.reconcile_metrics, workers, stop);
    }

    fn start_watches(&self) -> JoinSet<()> {
        let watches = Watches {
            all: self.all.clone(),
            stores: self.stores.clone(),
            settings: Arc::clone(&self.settings),
            metrics: self.watch_metrics.clone(),
            clock: Arc::clone(&self.clock),
            api_health: Arc::clone(&self.api_health),
        };
        let mut tasks = JoinSet::new();
        watches.control(&mut tasks, &self.client);
        if self.settings.controllers.run_sets() {
            watches.fleet(&mut tasks, &self.client);
        }
        match &self.stores.targets {
            Targets::None => {}
            Targets::One(target) => watches.target(&mut tasks, target),
            Targets::Several(clusters) => {
                let clusters = Arc::clone(clusters);
                tasks.spawn(TargetController { clusters, watches }.run());
            }
        }
        tasks
    }
}

async fn all_ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}
