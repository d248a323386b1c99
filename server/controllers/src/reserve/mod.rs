//! The MachineReserve controller. [`ostler_lifecycle::reserve`] makes the decisions.

mod given;
mod metrics;
mod observe;
mod triggers;

pub(crate) use metrics::register_reserves;

use std::sync::Arc;

use ostler_lifecycle::reserve::{ReserveReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Part, Plan, Write};

use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand, Unseen};
use crate::kind::{Kind, PassError, Passed};
use crate::set::{Handover, Pending};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// Reconciles MachineReserves.
pub(crate) struct Reserves {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) own: Arc<Remembered>,
    pub(crate) handover: Handover,
}

impl Kind for Reserves {
    const NAME: &'static str = "MachineReserve";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan<ReserveReport>;
    type Done = Applied;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan<ReserveReport> {
        plan(snapshot)
    }

    fn describe(plan: &Plan<ReserveReport>) -> String {
        plan.describe()
    }

    async fn execute(
        &self,
        of: &Snapshot,
        plan: &Plan<ReserveReport>,
    ) -> Result<Applied, PassError> {
        let own = Own { pending: &self.own.pending, uid: of.reserve.uid() };
        self.hand(of).apply(&plan.writes, &own).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan<ReserveReport>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        self.hand(&snapshot).record(plan, done).await
    }
}

impl Reserves {
    fn hand(&self, of: &Snapshot) -> Hand<'_> {
        let Self { writer, stores, recorder, .. } = self;
        let own = Object::Reserve(Arc::clone(&of.reserve));
        Hand { writer, stores, recorder, sessions: None, by: Self::NAME, own }
    }
}

/// State kept in no object.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pending: Pending,
    given: given::Given,
}

impl Remembered {
    fn forget(&self, reserve: &str) {
        self.pending.forget(reserve);
        self.given.forget(reserve);
    }
}

/// The memory about a reserve's writes.
struct Own<'a> {
    pending: &'a Pending,
    uid: &'a str,
}

impl Unseen for Own<'_> {
    fn sends(&self, _: Part, write: &Write) {
        self.pending.sends(self.uid, write);
    }

    fn answered(&self, _: Part, write: &Write, answer: Result<(), &WriteError>) {
        self.pending.answered(self.uid, write, answer);
    }
}
