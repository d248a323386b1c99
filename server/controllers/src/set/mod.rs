//! The MachineSet controller. [`ostler_lifecycle::set`] makes the decisions.
//!
//! A set creates Machines only while it sees all that it has: its own writes are awaited in the cache (`unseen`), and
//! what a process that led before may still have sent is awaited once (`handover`).

mod observe;
mod seen;
mod triggers;

pub(crate) use seen::{Seen, Seer};

use std::sync::Arc;
use std::time::Duration;

use ostler_api::machine::{MachineOperationType, MachinePhase};
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::foreign::Roll;
use ostler_lifecycle::set::{SetReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Part, Plan, Write};
use parking_lot::Mutex;

use crate::bootstrap::Configs;
use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::freeze::Freezes;
use crate::hand::{Applied, Hand, Notes};
use crate::handover::Handover;
use crate::kind::{Kind, PassError, Passed};
use crate::metrics::SetMetrics;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// How often a set is reconciled without an event.
const RESYNC: Duration = Duration::from_mins(10);

/// Reconciles MachineSets.
pub(crate) struct Sets {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: SetMetrics,
    pub(crate) handover: Handover,
    pub(crate) freezes: Arc<Freezes>,
    pub(crate) configs: Arc<Configs>,
    /// By which Machines of another process are known.
    pub(crate) roll: Mutex<Roll>,
    /// Whether this process looks after the Machines themselves; else a deletion has to be shown in their status.
    pub(crate) runs_machines: bool,
}

impl Kind for Sets {
    const NAME: &'static str = "MachineSet";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan<SetReport>;
    type Done = Applied;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan<SetReport> {
        plan(snapshot)
    }

    fn describe(plan: &Plan<SetReport>) -> String {
        plan.describe()
    }

    async fn execute(&self, of: &Snapshot, plan: &Plan<SetReport>) -> Result<Applied, PassError> {
        self.hand(&of.set).apply(&plan.writes, &Noted(self)).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan<SetReport>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        self.hand(&snapshot.set).record(plan, done).await
    }
}

impl Sets {
    fn hand(&self, set: &Arc<MachineSet>) -> Hand<'_> {
        let Self { writer, stores, recorder, .. } = self;
        let own = Object::Set(Arc::clone(set));
        Hand { writer, stores, recorder, sessions: None, by: Self::NAME, own }
    }
}

/// The notes on a set's writes.
struct Noted<'a>(&'a Sets);

impl Notes for Noted<'_> {
    fn sends(&self, part: Part, write: &Write) {
        if let (Part::Adopt | Part::Take, Some(machine)) = (part, write.of.machine()) {
            self.0.roll.lock().ours(machine);
        }
    }

    fn answered(&self, part: Part, write: &Write, answer: Result<(), &WriteError>) {
        let stale = write.of.machine().is_some_and(|machine| is_stale(machine));
        if (part, answer.is_ok(), stale) == (Part::Delete, true, true) {
            self.0.metrics.stale.inc();
        }
    }
}

/// Whether the Machine failed its health.
fn is_stale(machine: &Machine) -> bool {
    let last = machine.status.as_ref().and_then(|status| status.last_operation.as_ref());
    let of_health =
        last.and_then(|it| it.type_.as_ref()) == Some(&MachineOperationType::HealthCheck);
    machine.phase() == MachinePhase::Failed && of_health
}

#[cfg(test)]
mod tests;
