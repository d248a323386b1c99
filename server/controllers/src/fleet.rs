//! The kinds whose plan is writes and a report: one hand executes and records it for all of them.

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use ostler_lifecycle::write::{Object, Part, Plan, Report, Write};
use ostler_sessions::Sessions;

use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand, Notes};
use crate::kind::{Kind, PassError, Passed};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// What every kind uses. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
}

impl Tools {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock.0)()
    }

    /// The writes of a pass over an object.
    pub(crate) fn hand(&self, by: &'static str, own: Object) -> Hand<'_> {
        let Self { writer, stores, recorder, sessions, .. } = self;
        Hand { writer, stores, recorder, sessions, by, own }
    }
}

/// A kind of the fleet.
pub(crate) trait FleetKind: Send + Sync + 'static {
    /// Name in logs and metrics.
    const NAME: &'static str;
    /// The input of a plan.
    type Snapshot: Send + Sync;
    /// The report of a plan.
    type Report: Report + Send + Sync;

    /// What every kind uses.
    fn tools(&self) -> &Tools;

    /// Reads the input of a plan. `None`: nothing exists for this key.
    fn observe(
        &self,
        name: &ObjectName,
    ) -> impl Future<Output = Result<Option<Self::Snapshot>, PassError>> + Send;

    /// Decides.
    fn plan(snapshot: &Self::Snapshot) -> Plan<Self::Report>;

    /// The object of the pass.
    fn own(snapshot: &Self::Snapshot) -> Object;

    /// A write is about to be sent.
    fn sends(&self, _: Part, _: &Write) {}

    /// The answer to a write.
    fn answered(&self, _: &Self::Snapshot, _: (Part, &Write), _: Result<(), &WriteError>) {}

    /// The plan is written down, so it happened.
    fn recorded(&self, _: &Self::Snapshot, _: &Plan<Self::Report>) {}
}

/// A [`FleetKind`] as a [`Kind`].
pub(crate) struct Fleet<K>(pub(crate) Arc<K>);

impl<K: FleetKind> Fleet<K> {
    fn hand(&self, snapshot: &K::Snapshot) -> Hand<'_> {
        self.0.tools().hand(K::NAME, K::own(snapshot))
    }
}

impl<K: FleetKind> Kind for Fleet<K> {
    const NAME: &'static str = K::NAME;
    type Key = ObjectName;
    type Snapshot = K::Snapshot;
    type Plan = Plan<K::Report>;
    type Done = Applied;

    async fn observe(&self, name: &ObjectName) -> Result<Option<K::Snapshot>, PassError> {
        self.0.observe(name).await
    }

    fn plan(snapshot: &K::Snapshot) -> Plan<K::Report> {
        K::plan(snapshot)
    }

    fn describe(plan: &Plan<K::Report>) -> String {
        plan.describe()
    }

    async fn execute(
        &self,
        snapshot: &K::Snapshot,
        plan: &Plan<K::Report>,
    ) -> Result<Applied, PassError> {
        self.hand(snapshot).apply(&plan.writes, &Noted(&*self.0, snapshot)).await
    }

    async fn record(
        &self,
        snapshot: K::Snapshot,
        plan: Plan<K::Report>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        let passed = self.hand(&snapshot).record(&plan, done).await?;
        self.0.recorded(&snapshot, &plan);
        Ok(passed)
    }
}

/// The notes of a kind on the writes of a pass.
struct Noted<'a, K: FleetKind>(&'a K, &'a K::Snapshot);

impl<K: FleetKind> Notes for Noted<'_, K> {
    fn sends(&self, part: Part, write: &Write) {
        self.0.sends(part, write);
    }

    fn answered(&self, part: Part, write: &Write, answer: Result<(), &WriteError>) {
        self.0.answered(self.1, (part, write), answer);
    }
}
