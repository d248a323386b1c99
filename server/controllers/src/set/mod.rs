//! The MachineSet controller. [`ostler_lifecycle::set`] makes the decisions.
//!
//! A set creates Machines only while it sees all that it has: the answers to its own writes are awaited in the cache
//! (`pending`), and what a process that led before may still have sent is awaited once (`handover`).

mod execute;
mod handover;
mod machines;
mod observe;
mod pending;
mod record;

pub(crate) use execute::differs_in_status_only;
pub(crate) use handover::{Handover, Stage};
pub(crate) use pending::Pending;

use std::sync::Arc;
use std::time::Duration;

use ostler_api::MachineSet;
use ostler_lifecycle::foreign::Roll;
use ostler_lifecycle::set::{Failures, Plan, Snapshot, gathers, plan};
use parking_lot::Mutex;

use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::freeze::Freezes;
use crate::metrics::SetMetrics;
use crate::queue::{Priority, Queue};
use crate::reconcile::{Kind, PassError, Passed};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;
use crate::writes::Writer;

/// How often a set is reconciled without an event.
const RESYNC: Duration = Duration::from_mins(10);

/// Adds a key that has to do with a set because one of its Machines changed: after the time for which it gathers such
/// changes.
pub(crate) fn add_gathered<K>(queue: &Queue<K>, key: K, set: &MachineSet, priority: Priority)
where
    K: Clone + std::fmt::Debug + Eq + std::hash::Hash + Send + 'static,
{
    match gathers(set) {
        Some(time) => queue.add_after(&key, time),
        None => queue.add(key, priority),
    }
}

/// Reconciles MachineSets.
pub(crate) struct Sets {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: SetMetrics,
    pub(crate) pending: Arc<Pending>,
    pub(crate) handover: Handover,
    pub(crate) freezes: Arc<Freezes>,
    /// By which Machines of another process are known.
    pub(crate) roll: Mutex<Roll>,
    /// Whether this process looks after the Machines themselves; else a deletion has to be shown in their status.
    pub(crate) runs_machines: bool,
}

/// What a pass reads.
#[derive(Debug)]
pub(crate) struct Observed {
    facts: Snapshot,
    /// When to look again although nothing changed.
    again: Duration,
}

/// What became of the plan.
#[derive(Debug, Default)]
pub(crate) struct Done {
    failures: Failures,
    /// Something that failed and is no matter of creation or deletion.
    retry: bool,
    /// More Machines have to be written to than one pass does.
    more: bool,
    /// The finalizer or the number of replicas changed: the set is another version, or gone.
    rewritten: bool,
}

impl Kind for Sets {
    const NAME: &'static str = "MachineSet";
    type Key = ObjectName;
    type Snapshot = Observed;
    type Plan = Plan;
    type Done = Done;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Observed>, PassError> {
        self.gather(name).await
    }

    fn plan(observed: &Observed) -> Plan {
        plan(&observed.facts)
    }

    fn describe(plan: &Plan) -> String {
        let Plan { adopt, release, patches, repeat, create, delete, hold, .. } = plan;
        format!(
            "create {create}, repeat {}, delete {}, adopt {}, release {}, patch {}, hold {hold:?}",
            repeat.len(),
            delete.len(),
            adopt.len(),
            release.len(),
            patches.len()
        )
    }

    async fn execute(&self, observed: &Observed, plan: &Plan) -> Result<Done, PassError> {
        self.carry_out(&observed.facts, plan).await
    }

    async fn record(
        &self,
        observed: Observed,
        plan: Plan,
        done: Done,
    ) -> Result<Passed, PassError> {
        self.write_status(observed, plan, done).await
    }
}

#[cfg(test)]
mod tests;
