//! The MachineReserve controller. [`ostler_lifecycle::reserve`] makes the decisions.

mod given;
mod metrics;
mod observe;
mod triggers;

pub(crate) use given::Given;
pub(crate) use metrics::register_reserves;

use std::sync::Arc;

use ostler_lifecycle::reserve::{ReserveReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Plan};

use crate::client::Writer;
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand};
use crate::handover::Handover;
use crate::kind::{Kind, PassError, Passed};
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
    pub(crate) given: Arc<Given>,
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
        self.hand(of).apply(&plan.writes, &()).await
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
