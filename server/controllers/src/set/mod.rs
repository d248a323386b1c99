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

use ostler_api::Machine;
use ostler_api::machine::{MachineOperationType, MachinePhase};
use ostler_lifecycle::foreign::Roll;
use ostler_lifecycle::set::{SetReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Part, Plan, Write};
use parking_lot::Mutex;

use crate::bootstrap::Configs;
use crate::client::WriteError;
use crate::fleet::{FleetKind, Tools};
use crate::freeze::Freezes;
use crate::handover::Handover;
use crate::kind::PassError;
use crate::metrics::SetMetrics;
use crate::watch::ObjectName;

/// How often a set is reconciled without an event.
const RESYNC: Duration = Duration::from_mins(10);

/// Reconciles MachineSets.
pub(crate) struct Sets {
    pub(crate) tools: Tools,
    pub(crate) metrics: SetMetrics,
    pub(crate) handover: Handover,
    pub(crate) freezes: Arc<Freezes>,
    pub(crate) configs: Arc<Configs>,
    /// By which Machines of another process are known.
    pub(crate) roll: Mutex<Roll>,
    /// Whether this process looks after the Machines themselves; else a deletion has to be shown in their status.
    pub(crate) runs_machines: bool,
}

impl FleetKind for Sets {
    const NAME: &'static str = "MachineSet";
    type Snapshot = Snapshot;
    type Report = SetReport;

    fn tools(&self) -> &Tools {
        &self.tools
    }

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan<SetReport> {
        plan(snapshot)
    }

    fn own(snapshot: &Snapshot) -> Object {
        Object::Set(Arc::clone(&snapshot.set))
    }

    fn sends(&self, part: Part, write: &Write) {
        if let (Part::Adopt | Part::Take, Some(machine)) = (part, write.of.machine()) {
            self.roll.lock().ours(machine);
        }
    }

    fn answered(
        &self,
        _: &Snapshot,
        (part, write): (Part, &Write),
        answer: Result<(), &WriteError>,
    ) {
        let stale = write.of.machine().is_some_and(|machine| is_stale(machine));
        if (part, answer.is_ok(), stale) == (Part::Delete, true, true) {
            self.metrics.stale.inc();
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
