//! Holds the core's own objects: the ConfigMap with the cluster id here, the Leases at their renewal.

mod triggers;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use ostler_api::names::{CLUSTER_ID_CONFIG_MAP, finalizer};
use ostler_lifecycle::class::FinalizerChange;
use ostler_lifecycle::home::{Need, apply, hold, is_going, let_go};
use tokio::sync::watch;

use crate::client::Writer;
use crate::home_namespace::HomeNamespace;
use crate::kind::{Kind, PassError, Passed};
use crate::queue::Outcome;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// State shared by the passes over the ConfigMap, its triggers and the candidates for the Leases.
pub(crate) struct Shared {
    /// Whether this core is needed.
    pub(crate) needs: Needs,
    /// Where its Leases and the cluster id are.
    pub(crate) namespace: Arc<HomeNamespace>,
}

/// Whether the core is needed, according to its caches. The Leases are held while it is.
#[derive(Debug, Default)]
pub(crate) struct Needs(watch::Sender<Need>);

impl Needs {
    /// Notes the need; returns whether the need changed.
    pub(crate) fn note(&self, need: Need) -> bool {
        self.0.send_if_modified(|before| std::mem::replace(before, need) != need)
    }

    /// The need and its changes.
    pub(crate) fn follow(&self) -> watch::Receiver<Need> {
        self.0.subscribe()
    }
}

impl Stores {
    /// Whether a core is needed for deletions.
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

/// How often the ConfigMap is read: users edit and delete it, and no watch says so.
const LOOK: Duration = Duration::from_secs(10);

/// Keeps the ConfigMap of the cluster id, and its finalizer while that is needed.
pub(crate) struct Home {
    pub(crate) writer: Writer,
    pub(crate) need: watch::Receiver<Need>,
    pub(crate) namespace: Arc<HomeNamespace>,
}

/// The ConfigMap, and whether it is needed.
pub(crate) struct Observed {
    map: ConfigMap,
    need: Need,
    state: State,
}

/// The state of the object in the API server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The object exists.
    Here,
    /// A user deleted it alone.
    Deleted,
    /// The object is gone.
    Gone,
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Change the finalizer.
    Finalizer(FinalizerChange),
    /// Release the object, to make it again.
    LetGo,
    /// Make the object again.
    Make,
}

impl Kind for Home {
    const NAME: &'static str = "ConfigMap";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = Step;
    type Done = ();

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        if self.namespace.current() != name.namespace {
            return Ok(None);
        }
        let need = *self.need.borrow();
        let read = self.writer.get(&self.writer.api(&name.namespace), &name.name).await;
        let map = read.map_err(|it| PassError::of_write("reading the cluster id", it))?;
        let Some(map) = map else {
            let map = self.namespace.again(&name.namespace);
            return Ok(map.map(|map| Observed { map, need, state: State::Gone }));
        };
        self.namespace.note(&map);
        let deleted = is_going(&map.metadata) && self.namespace.stays(&name.namespace).await;
        let state = if deleted { State::Deleted } else { State::Here };
        Ok(Some(Observed { map, need, state }))
    }

    fn plan(observed: &Observed) -> Step {
        match observed.state {
            State::Here => Step::Finalizer(hold(&observed.map.metadata, observed.need)),
            State::Deleted => Step::LetGo,
            State::Gone => Step::Make,
        }
    }

    fn describe(plan: &Step) -> String {
        format!("{plan:?}")
    }

    async fn execute(&self, observed: &Observed, plan: &Step) -> Result<(), PassError> {
        let mut map = observed.map.clone();
        let api = self.writer.api(map.metadata.namespace.as_deref().unwrap_or_default());
        match plan {
            Step::Finalizer(FinalizerChange::Keep) => return Ok(()),
            Step::Finalizer(_) | Step::Make => drop(apply(&mut map.metadata, observed.need)),
            Step::LetGo => let_go(&mut map.metadata),
        }
        let written = match plan {
            Step::Make => self.writer.create(&api, &map).await,
            Step::Finalizer(_) | Step::LetGo => {
                self.writer.replace(&api, CLUSTER_ID_CONFIG_MAP, &map).await
            }
        };
        written.map(drop).map_err(|it| PassError::of_write("holding the cluster id", it))
    }

    async fn record(&self, _: Observed, plan: Step, (): ()) -> Result<Passed, PassError> {
        match plan {
            Step::LetGo => Ok(Passed::Changed),
            Step::Finalizer(_) | Step::Make => Ok(Passed::Settled(Outcome::Again(LOOK))),
        }
    }
}
