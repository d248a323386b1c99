//! The shape of every controller: observe → plan → execute → record, repeated until nothing is left to write.
//!
//! A kind defines its key, snapshot, plan and actions. The queue, the passes, the errors that end a pass and the
//! metrics are implemented here, once.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::client::WriteError;
use crate::queue::{Outcome, Queue};

/// Consecutive passes over one key. A key that still has something to write then goes back to the queue.
const PASSES_IN_A_ROW: usize = 8;
/// How soon such a key is reconciled again.
const NEXT_TURN: Duration = Duration::from_secs(1);

/// Why a pass ended early. Nothing that was not recorded was sent.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The object changed after the plan was made; the next pass makes a new plan.
    #[error("the object changed meanwhile")]
    Outdated,
    /// The object is gone.
    #[error("the object is gone")]
    Gone,
    /// Another controller of this core has to write first; reconcile again after this time if its event does not
    /// come.
    #[error("another controller has to write first")]
    NotYet(Duration),
    /// The API server accepted the status and dropped fields that the core needs.
    #[error("the API server drops fields of this kind")]
    Pruned,
    /// The API server did not accept a write, or did not answer a read.
    #[error("{what}")]
    Api {
        /// The request.
        what: &'static str,
        /// The cause.
        #[source]
        source: WriteError,
    },
}

impl PassError {
    /// Why a write on condition of a version was not made.
    pub fn of_write(what: &'static str, source: WriteError) -> Self {
        if matches!(source, WriteError::NotFound) {
            Self::Gone
        } else if matches!(source, WriteError::Conflict) {
            Self::Outdated
        } else {
            Self::Api { what, source }
        }
    }

    /// `Outdated` unless a live read shows the basis of the decision: the same object, spec, deletion and annotations.
    pub fn unless_same(live: &ObjectMeta, seen: &ObjectMeta) -> Result<(), Self> {
        let same = live.uid == seen.uid
            && live.generation == seen.generation
            && live.deletion_timestamp == seen.deletion_timestamp
            && live.annotations == seen.annotations;
        if same { Ok(()) } else { Err(Self::Outdated) }
    }
}

/// How a pass ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// The pass wrote something that the next plan must see: observe again immediately.
    Changed,
    /// Nothing more to write; the outcome for the queue.
    Settled(Outcome),
}

/// A kind of object, or of anything else with a key, that a controller reconciles.
pub trait Kind: Send + Sync + 'static {
    /// Name in logs and metrics.
    const NAME: &'static str;
    /// Identifies one object of the kind.
    type Key: Clone + Debug + Display + Eq + Hash + Send + Sync + 'static;
    /// The input of a plan.
    type Snapshot: Send + Sync;
    /// The decision: what to do.
    type Plan: Send + Sync;
    /// The results of the actions.
    type Done: Send;

    /// Reads the input of a plan. `None`: nothing exists for this key.
    fn observe(
        &self,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Option<Self::Snapshot>, PassError>> + Send;

    /// Decides. A pure function of the snapshot, called once in a pass.
    fn plan(snapshot: &Self::Snapshot) -> Self::Plan;

    /// The plan in a few words, for the log.
    fn describe(plan: &Self::Plan) -> String;

    /// Executes the actions of the plan. Decides nothing.
    fn execute(
        &self,
        snapshot: &Self::Snapshot,
        plan: &Self::Plan,
    ) -> impl Future<Output = Result<Self::Done, PassError>> + Send;

    /// Records the results, and then does what must not happen before they are recorded.
    fn record(
        &self,
        snapshot: Self::Snapshot,
        plan: Self::Plan,
        done: Self::Done,
    ) -> impl Future<Output = Result<Passed, PassError>> + Send;

    /// A pass ended early. The error may concern the API server and not only this key.
    fn on_error(&self, _error: &PassError) {}
}

/// Reconciles one key.
pub async fn reconcile<K: Kind>(kind: &K, key: &K::Key, metrics: &ReconcileMetrics) -> Outcome {
    for _ in 0..PASSES_IN_A_ROW {
        match pass(kind, key).await {
            Ok(Passed::Changed) => {}
            Ok(Passed::Settled(outcome)) => return metrics.settled(K::NAME, outcome),
            Err(error) => {
                kind.on_error(&error);
                return failed::<K>(key, &error, metrics);
            }
        }
    }
    warn!(kind = K::NAME, %key, "still writing after {PASSES_IN_A_ROW} passes");
    metrics.settled(K::NAME, Outcome::Again(NEXT_TURN))
}

async fn pass<K: Kind>(kind: &K, key: &K::Key) -> Result<Passed, PassError> {
    let Some(snapshot) = kind.observe(key).await? else {
        return Ok(Passed::Settled(Outcome::Done));
    };
    let plan = K::plan(&snapshot);
    debug!(kind = K::NAME, %key, plan = K::describe(&plan), "planned");
    let done = kind.execute(&snapshot, &plan).await?;
    kind.record(snapshot, plan, done).await
}

fn failed<K: Kind>(key: &K::Key, error: &PassError, metrics: &ReconcileMetrics) -> Outcome {
    match error {
        PassError::Gone => metrics.settled(K::NAME, Outcome::Done),
        PassError::NotYet(wait) => metrics.settled(K::NAME, Outcome::Again(*wait)),
        PassError::Outdated => {
            metrics.failed(K::NAME, "outdated");
            Outcome::Outdated
        }
        PassError::Pruned => metrics.failed(K::NAME, "pruned"),
        PassError::Api { what, source } => {
            warn!(kind = K::NAME, %key, error = %source, "{what}");
            metrics.failed(K::NAME, "api")
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    kind: &'static str,
    result: &'static str,
}

/// Counts reconciles by result.
#[derive(Debug, Clone, Default)]
pub struct ReconcileMetrics(Family<ResultLabel, Counter>);

impl ReconcileMetrics {
    /// Registers the counter.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Reconciles by kind and result";
        registry.register("ostler_reconciles", help, metrics.0.clone());
        metrics
    }

    /// Counts a finished reconcile by outcome.
    fn settled(&self, kind: &'static str, outcome: Outcome) -> Outcome {
        let result = match outcome {
            Outcome::Done => "done",
            Outcome::Again(_) => "waits",
            Outcome::Failed | Outcome::Outdated => "failed",
        };
        self.0.get_or_create(&ResultLabel { kind, result }).inc();
        outcome
    }

    /// Counts a reconcile that ended with an error.
    fn failed(&self, kind: &'static str, result: &'static str) -> Outcome {
        self.0.get_or_create(&ResultLabel { kind, result }).inc();
        Outcome::Failed
    }
}

/// Starts the workers of a kind.
pub fn work<K: Kind>(
    kind: Arc<K>,
    queue: &Arc<Queue<K::Key>>,
    metrics: &ReconcileMetrics,
    workers: &mut JoinSet<()>,
    stop: &CancellationToken,
) {
    let metrics = metrics.clone();
    workers.spawn(Arc::clone(queue).run(stop.clone(), move |key: K::Key| {
        let (kind, metrics) = (Arc::clone(&kind), metrics.clone());
        async move { reconcile(kind.as_ref(), &key, &metrics).await }
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts up to its key, one write in each pass; breaks off at 100.
    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Kind for Counter {
        const NAME: &'static str = "Counter";
        type Key = usize;
        type Snapshot = (usize, usize);
        type Plan = bool;
        type Done = ();

        async fn observe(&self, key: &usize) -> Result<Option<(usize, usize)>, PassError> {
            match key {
                0 => Ok(None),
                100.. => Err(PassError::Outdated),
                _ => Ok(Some((self.0.load(Ordering::SeqCst), *key))),
            }
        }

        fn plan((count, goal): &(usize, usize)) -> bool {
            count < goal
        }

        fn describe(counts: &bool) -> String {
            counts.to_string()
        }

        async fn execute(&self, _: &(usize, usize), counts: &bool) -> Result<(), PassError> {
            self.0.fetch_add(usize::from(*counts), Ordering::SeqCst);
            Ok(())
        }

        async fn record(
            &self,
            _: (usize, usize),
            counts: bool,
            (): (),
        ) -> Result<Passed, PassError> {
            Ok(if counts { Passed::Changed } else { Passed::Settled(Outcome::Done) })
        }
    }

    async fn outcome(kind: &Counter, key: usize) -> Outcome {
        reconcile(kind, &key, &ReconcileMetrics::register(&mut Registry::default())).await
    }

    #[tokio::test]
    async fn passes_follow_each_other_until_nothing_is_left_to_write() {
        let counter = Counter::default();
        assert_eq!(outcome(&counter, 5).await, Outcome::Done);
        assert_eq!(counter.0.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn a_key_that_never_settles_goes_back_into_the_queue() {
        let counter = Counter::default();
        assert_eq!(outcome(&counter, 99).await, Outcome::Again(NEXT_TURN));
        assert_eq!(counter.0.load(Ordering::SeqCst), PASSES_IN_A_ROW);
    }

    #[tokio::test]
    async fn a_pass_that_ends_early_is_a_failure_and_a_key_that_is_gone_is_none() {
        assert_eq!(outcome(&Counter::default(), 100).await, Outcome::Outdated);
        assert_eq!(outcome(&Counter::default(), 0).await, Outcome::Done);
    }
}
