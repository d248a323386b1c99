//! The MachinePool controller. [`ostler_lifecycle::pool`] makes the decisions.
//!
//! A group is read from time to time, and before every decision that follows an operation (`groups`). Its operations go
//! the way of those of Machines: the intent is written down before anything is sent.

mod execute;
mod groups;
mod observe;
mod reads;
mod record;
#[cfg(test)]
mod tests;
mod triggers;

pub(crate) use groups::Groups;
pub(crate) use reads::Reads;
pub(crate) use triggers::GroupReads;

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use ostler_api::MachinePool;
use ostler_api::operation::Term;
use ostler_lifecycle::pool::{Plan, Snapshot, plan};
use ostler_sessions::Sessions;

use crate::client::Writer;
use crate::clock::DebugClock;
use crate::events::{EventRecord, Recorder, Severity};
use crate::kind::{Kind, PassError, Passed};
use crate::set::Handover;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// How often a group is read in which nothing is to be done.
const CALM: Duration = Duration::from_mins(1);
/// How often a group is read that changes.
const BUSY: Duration = Duration::from_secs(10);

/// Reconciles MachinePools.
pub(crate) struct Pools {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) groups: Arc<Groups>,
    /// What the process that led before did is listed, and not awaited: if more of it arrives, it is what this one repeats.
    pub(crate) handover: Handover,
    pub(crate) reads: Reads,
    pub(crate) term: Term,
}

/// What became of the plan.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The pool itself was written to: it is another version, or gone.
    changed: bool,
    /// The worst of the writes of Machines.
    wrote: Wrote,
}

/// How a write ended, from good to bad.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wrote {
    #[default]
    Fine,
    /// The Machine is another version than was seen, as happens all the time while it boots: the next pass sees that.
    Outdated,
    /// It is tried again.
    Failed,
}

impl Kind for Pools {
    const NAME: &'static str = "MachinePool";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan;
    type Done = Done;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan {
        plan(snapshot)
    }

    fn describe(plan: &Plan) -> String {
        let sent = plan.dispatch.as_ref().map(ostler_lifecycle::operation::Dispatch::kind);
        format!(
            "create {}, patch {}, gone {}, delete {}, send {sent:?}",
            plan.create.len(),
            plan.patches.len() + plan.instances.len(),
            plan.gone.len(),
            plan.delete.len()
        )
    }

    async fn execute(&self, snapshot: &Snapshot, plan: &Plan) -> Result<Done, PassError> {
        self.carry_out(snapshot, plan).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan,
        done: Done,
    ) -> Result<Passed, PassError> {
        self.write_down(&snapshot, plan, &done).await
    }
}

impl Pools {
    fn tell(
        &self,
        pool: &MachinePool,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let regarding = pool.object_ref(&());
        self.recorder.record(EventRecord { regarding, severity, reason, action, note });
    }
}

fn namespace_of(pool: &MachinePool) -> &str {
    pool.metadata.namespace.as_deref().unwrap_or_default()
}
