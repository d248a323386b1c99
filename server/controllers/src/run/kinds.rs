//! The kinds reconciled by this core, each with a queue and triggers.
//!
//! A new kind is a folder with its four calls and `triggers.rs`, a field here, and workers (`run.rs`, or `sets.rs` beside this
//! file). If nothing watches its objects yet, it is also an index (`indexes`), a cache (`stores`), a watch (`watching`) and its
//! events for others (`triggers`). CONTRIBUTING.md lists the places in the other crates.

use std::sync::Arc;

use ostler_sessions::Sessions;

use crate::bootstrap::{Configs, Queues};
use crate::class::{Classes, Secrets};
use crate::deployment::Deployments;
use crate::events::Recorder;
use crate::fleet::Fleet;
use crate::freeze::Freezes;
use crate::health_check::HealthChecks;
use crate::home::{self, Home, Needs};
use crate::home_namespace::HomeNamespace;
use crate::hot_update::ReviewKey;
use crate::kind::Kind;
use crate::left_groups::LeftGroups;
use crate::machine::{Machines, Shared, State};
use crate::orphans::{OrphanScans, Orphans};
use crate::pool::{self, Pools};
use crate::queue::{Queue, QueueMetrics, QueueSettings};
use crate::reserve::{Given, Reserves};
use crate::set::Sets;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::triggers::{AllTriggers, Triggers, Woken};
use crate::unmanaged_nodes::UnmanagedNodes;
use crate::watching::TargetTriggers;

/// Workers that wait for drivers: a silent driver occupies few of them.
const ASKING_WORKERS: usize = 32;
/// Workers for kinds with few objects.
const FEW_WORKERS: usize = 4;

/// All kinds.
pub(crate) struct Kinds {
    pub(crate) machines: Arc<Woken<Machines, Shared>>,
    pub(crate) classes: Arc<Woken<Classes>>,
    pub(crate) secrets: Arc<Woken<Secrets>>,
    /// Woken by classes.
    pub(crate) reviews: Arc<Queue<ReviewKey>>,
    pub(crate) scans: Arc<Woken<Orphans, OrphanScans>>,
    pub(crate) nodes: Arc<Woken<UnmanagedNodes>>,
    pub(crate) sets: Arc<Woken<Fleet<Sets>>>,
    pub(crate) deployments: Arc<Woken<Fleet<Deployments>>>,
    pub(crate) reserves: Arc<Woken<Fleet<Reserves>, Arc<Given>>>,
    pub(crate) freezes: Arc<Woken<Freezes>>,
    pub(crate) pools: Arc<Woken<Fleet<Pools>, pool::Shared>>,
    pub(crate) checks: Arc<Woken<Fleet<HealthChecks>>>,
    pub(crate) home: Arc<Woken<Home, home::Shared>>,
}

/// The parts common to every kind.
struct Of<'a> {
    metrics: &'a QueueMetrics,
    stores: &'a Stores,
    settings: &'a Arc<Settings>,
}

impl Of<'_> {
    fn woken<K: Kind, T>(&self, name: &'static str, workers: usize, own: T) -> Arc<Woken<K, T>> {
        let queue = Queue::new(QueueSettings::new(name, workers), self.metrics);
        self.queued(queue, own)
    }

    fn queued<K: Kind, T>(&self, queue: Arc<Queue<K::Key>>, own: T) -> Arc<Woken<K, T>> {
        let (stores, settings) = (self.stores.clone(), Arc::clone(self.settings));
        Arc::new(Woken { queue, stores, settings, own })
    }
}

impl Kinds {
    pub(crate) fn new(
        metrics: &QueueMetrics,
        stores: &Stores,
        settings: &Arc<Settings>,
        state: &Arc<State>,
        (sessions, recorder, home): (&Sessions, &Recorder, &Arc<HomeNamespace>),
    ) -> Self {
        let (of, many) = (Of { metrics, stores, settings }, settings.concurrent_syncs);
        let scans = Queue::new(QueueSettings::new("orphans", ASKING_WORKERS), metrics);
        let asked = OrphanScans::new(Arc::clone(&scans));
        let sessions = sessions.clone();
        let reads = Queue::new(QueueSettings::new("machinegroup", ASKING_WORKERS), metrics);
        let (groups, left) = (Arc::default(), LeftGroups::new(&reads));
        let groups = pool::Shared { groups, reads, left, sessions: sessions.clone() };
        let (state, recorder) = (Arc::clone(state), recorder.clone());
        let shared = Shared { state, scans: asked.clone(), recorder, sessions };
        let home = home::Shared { needs: Needs::default(), namespace: Arc::clone(home) };
        Self {
            machines: of.woken("machine", many, shared),
            classes: of.woken("machineclass", FEW_WORKERS, ()),
            secrets: of.woken("secret", FEW_WORKERS, ()),
            reviews: Queue::new(QueueSettings::new("classreview", ASKING_WORKERS), metrics),
            scans: of.queued(scans, asked),
            nodes: of.woken("node", FEW_WORKERS, ()),
            sets: of.woken("machineset", many, ()),
            deployments: of.woken("machinedeployment", many, ()),
            reserves: of.woken("machinereserve", FEW_WORKERS, Arc::default()),
            freezes: of.woken("freeze", FEW_WORKERS, ()),
            pools: of.woken("machinepool", many, groups),
            checks: of.woken("machinehealthcheck", FEW_WORKERS, ()),
            home: of.woken("clusterid", 1, home),
        }
    }

    /// The queues that objects of bootstrap providers wake.
    pub(crate) fn booted(&self) -> Queues {
        Queues {
            machines: Arc::clone(&self.machines.queue),
            sets: Arc::clone(&self.sets.queue),
            pools: Arc::clone(&self.pools.queue),
        }
    }

    /// The listeners, in the order of their calls.
    pub(crate) fn all(&self, configs: &Arc<Configs>, stores: &Stores) -> AllTriggers {
        let all: Vec<Arc<dyn Triggers>> = vec![
            configs.clone(),
            self.home.clone(),
            self.sets.clone(),
            self.deployments.clone(),
            self.reserves.clone(),
            self.pools.clone(),
            self.checks.clone(),
            self.freezes.clone(),
            self.machines.clone(),
            self.nodes.clone(),
            self.classes.clone(),
            self.secrets.clone(),
            self.scans.clone(),
            Arc::new(TargetTriggers(stores.clone())),
        ];
        AllTriggers::new(all)
    }
}

#[cfg(test)]
#[path = "kinds_tests.rs"]
mod tests;
