//! The kinds that this core reconciles: of each, its queue and what wakes it.

use std::sync::Arc;

use ostler_sessions::Sessions;

use crate::bootstrap::Configs;
use crate::class::{ClassTriggers, SecretTriggers};
use crate::deployment::DeploymentTriggers;
use crate::events::Recorder;
use crate::freeze::FreezeTriggers;
use crate::health_check::CheckTriggers;
use crate::home::{HomeTriggers, Needs};
use crate::hot_update::ReviewKey;
use crate::machine::{MachineTriggers, State};
use crate::orphans::{OrphanScans, ScanTriggers};
use crate::pool::PoolTriggers;
use crate::queue::{Queue, QueueMetrics, QueueSettings};
use crate::set::SetTriggers;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::triggers::{AllTriggers, Triggers};
use crate::unmanaged_nodes::NodeTriggers;
use crate::watching::TargetTriggers;

/// Workers that wait for drivers: one that does not answer occupies few of them.
const ASKING_WORKERS: usize = 32;
/// Workers for kinds with few objects.
const FEW_WORKERS: usize = 4;

/// All kinds.
pub(crate) struct Kinds {
    pub(crate) machines: Arc<MachineTriggers>,
    pub(crate) classes: Arc<ClassTriggers>,
    pub(crate) secrets: Arc<SecretTriggers>,
    /// A class wakes it by itself.
    pub(crate) reviews: Arc<Queue<ReviewKey>>,
    pub(crate) scans: Arc<ScanTriggers>,
    pub(crate) nodes: Arc<NodeTriggers>,
    pub(crate) sets: Arc<SetTriggers>,
    pub(crate) deployments: Arc<DeploymentTriggers>,
    pub(crate) freezes: Arc<FreezeTriggers>,
    pub(crate) pools: Arc<PoolTriggers>,
    pub(crate) checks: Arc<CheckTriggers>,
    pub(crate) home: Arc<HomeTriggers>,
}

impl Kinds {
    pub(crate) fn new(
        metrics: &QueueMetrics,
        stores: &Stores,
        settings: &Arc<Settings>,
        state: &Arc<State>,
        (sessions, recorder): (&Sessions, &Recorder),
    ) -> Self {
        let queue = |name, workers| Queue::new(QueueSettings::new(name, workers), metrics);
        let (many, stores, settings) =
            (settings.concurrent_syncs, || stores.clone(), || Arc::clone(settings));
        let scans = QueueSettings::new("orphans", ASKING_WORKERS);
        let scans = OrphanScans::new(Queue::new(scans, metrics));
        let machines = MachineTriggers {
            queue: queue("machine", many),
            stores: stores(),
            settings: settings(),
            state: Arc::clone(state),
            scans: scans.clone(),
            recorder: recorder.clone(),
            sessions: sessions.clone(),
        };
        let classes = queue("machineclass", FEW_WORKERS);
        let pools = PoolTriggers {
            queue: queue("machinepool", many),
            stores: stores(),
            settings: settings(),
            sessions: sessions.clone(),
            groups: Arc::default(),
        };
        let sets = queue("machineset", many);
        let freezes = Queue::new(QueueSettings::new("freeze", FEW_WORKERS), metrics);
        let home = HomeTriggers {
            queue: queue("clusterid", 1),
            stores: stores(),
            settings: settings(),
            needs: Needs::default(),
        };
        let checks = queue("machinehealthcheck", FEW_WORKERS);
        let deployments = queue("machinedeployment", many);
        Self {
            machines: Arc::new(machines),
            classes: Arc::new(ClassTriggers {
                queue: classes,
                stores: stores(),
                settings: settings(),
            }),
            secrets: Arc::new(SecretTriggers { queue: queue("secret", FEW_WORKERS) }),
            reviews: Queue::new(QueueSettings::new("classreview", ASKING_WORKERS), metrics),
            scans: Arc::new(ScanTriggers { scans, settings: settings() }),
            nodes: Arc::new(NodeTriggers { queue: queue("node", FEW_WORKERS), stores: stores() }),
            sets: Arc::new(SetTriggers { queue: sets, stores: stores(), pending: Arc::default() }),
            deployments: Arc::new(DeploymentTriggers { queue: deployments, stores: stores() }),
            freezes: Arc::new(FreezeTriggers { queue: freezes, stores: stores() }),
            pools: Arc::new(pools),
            checks: Arc::new(CheckTriggers { queue: checks, stores: stores() }),
            home: Arc::new(home),
        }
    }

    /// Who hears what happens, in this order.
    pub(crate) fn all(&self, configs: &Arc<Configs>, stores: &Stores) -> AllTriggers {
        let all: Vec<Arc<dyn Triggers>> = vec![
            configs.clone(),
            self.home.clone(),
            self.sets.clone(),
            self.deployments.clone(),
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
