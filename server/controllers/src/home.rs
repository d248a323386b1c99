//! Holds what the core itself needs: the ConfigMap with the cluster id here, its Leases when it renews them.

mod triggers;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use ostler_api::names::{CLUSTER_ID_CONFIG_MAP, finalizer};
use ostler_lifecycle::class::Hold;
use ostler_lifecycle::home::{Need, apply, hold};
use tokio::sync::watch;

use crate::queue::Outcome;
use crate::reconcile::{Kind, PassError, Passed};
use crate::stores::Stores;
use crate::watch::ObjectName;
use crate::writes::Writer;

/// Whether this core is needed, as its caches say. The Leases are held by it.
#[derive(Debug, Default)]
pub(crate) struct Needs(watch::Sender<Need>);

impl Needs {
    /// Notes whether it is; returns whether that is news.
    pub(crate) fn note(&self, need: Need) -> bool {
        self.0.send_if_modified(|before| std::mem::replace(before, need) != need)
    }

    /// Whether it is, and every change of that.
    pub(crate) fn follow(&self) -> watch::Receiver<Need> {
        self.0.subscribe()
    }
}

impl Stores {
    /// Whether a core is needed to delete what there is.
    pub(crate) fn need(&self, runs_sets: bool) -> Need {
        let Self { machines, pools, classes, secrets, sets, deployments, .. } = self;
        let goes = |secret: &Secret| {
            let mut finalizers = secret.metadata.finalizers.iter().flatten();
            let deleting = secret.metadata.deletion_timestamp.is_some();
            deleting && finalizers.any(|name| name == finalizer::SECRET)
        };
        let there = !machines.is_empty()
            || !pools.is_empty()
            || machines.has_unreadable()
            || pools.has_unreadable()
            || classes.all().iter().any(|class| class.has_finalizer())
            || secrets.all().iter().any(|secret| goes(secret))
            || sets.all().iter().any(|set| set.has_finalizer())
            || deployments.all().iter().any(|deployment| deployment.has_finalizer());
        let listed = machines.is_synced()
            && classes.is_synced()
            && (!runs_sets || sets.is_synced() && deployments.is_synced());
        match (there, listed) {
            (true, _) => Need::Needed,
            (false, true) => Need::Idle,
            (false, false) => Need::Unknown,
        }
    }
}

/// Puts the finalizer on the ConfigMap of the cluster id.
pub(crate) struct Home {
    pub(crate) writer: Writer,
    pub(crate) need: watch::Receiver<Need>,
}

/// The ConfigMap, and whether it is needed.
pub(crate) struct Observed {
    map: ConfigMap,
    need: Need,
}

impl Kind for Home {
    const NAME: &'static str = "ConfigMap";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = Hold;
    type Done = ();

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        let need = *self.need.borrow();
        let read = self.writer.get(&self.writer.api(&name.namespace), &name.name).await;
        let map = read.map_err(|it| PassError::of_write("reading the cluster id", it))?;
        Ok(map.map(|map| Observed { map, need }))
    }

    fn plan(observed: &Observed) -> Hold {
        hold(&observed.map.metadata, observed.need)
    }

    fn describe(plan: &Hold) -> String {
        format!("{plan:?}")
    }

    async fn execute(&self, observed: &Observed, plan: &Hold) -> Result<(), PassError> {
        if *plan == Hold::Keep {
            return Ok(());
        }
        let mut map = observed.map.clone();
        apply(&mut map.metadata, observed.need);
        let api = self.writer.api(map.metadata.namespace.as_deref().unwrap_or_default());
        let written = self.writer.replace(&api, CLUSTER_ID_CONFIG_MAP, &map).await;
        written.map(drop).map_err(|it| PassError::of_write("holding the cluster id", it))
    }

    async fn record(&self, _: Observed, _: Hold, (): ()) -> Result<Passed, PassError> {
        Ok(Passed::Settled(Outcome::Done))
    }
}
