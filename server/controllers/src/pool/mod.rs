//! The MachinePool controller. [`ostler_lifecycle::pool`] makes the decisions.
//!
//! A group is read from time to time, and before every decision after an operation (`reads`): the pool looks at the
//! last read (`groups`). A pool's operations work like a Machine's: the intent is recorded before the request.

mod groups;
mod observe;
mod reads;
#[cfg(test)]
mod tests;
mod triggers;

pub(crate) use groups::Groups;
pub(crate) use reads::{GroupReads, Running};
pub(crate) use triggers::Shared;

use std::sync::Arc;

use ostler_api::MachinePool;
use ostler_api::operation::Term;
use ostler_lifecycle::pool::{PoolReport, Snapshot, plan};
use ostler_lifecycle::write::{Object, Part, Plan, Verb, Write};
use ostler_sessions::Sessions;

use crate::bootstrap::Configs;
use crate::client::{WriteError, Writer};
use crate::clock::DebugClock;
use crate::events::Recorder;
use crate::hand::{Applied, Hand, Notes};
use crate::handover::Handover;
use crate::kind::{Kind, PassError, Passed};
use crate::left_groups::GroupKey;
use crate::queue::{Priority, Queue};
use crate::settings::Settings;
use crate::stores::Stores;
use crate::watch::ObjectName;

/// Reconciles MachinePools.
pub(crate) struct Pools {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) groups: Arc<Groups>,
    /// Where groups are read.
    pub(crate) reads: Arc<Queue<GroupKey>>,
    pub(crate) configs: Arc<Configs>,
    /// Requests of the previous leader are listed, and not awaited: this process repeats a request that arrives late.
    pub(crate) handover: Handover,
    pub(crate) term: Term,
}

impl Kind for Pools {
    const NAME: &'static str = "MachinePool";
    type Key = ObjectName;
    type Snapshot = Snapshot;
    type Plan = Plan<PoolReport>;
    type Done = Applied;

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan<PoolReport> {
        plan(snapshot)
    }

    fn describe(plan: &Plan<PoolReport>) -> String {
        plan.describe()
    }

    async fn execute(&self, of: &Snapshot, plan: &Plan<PoolReport>) -> Result<Applied, PassError> {
        let own = Noted { groups: &self.groups, pool: &of.pool };
        self.hand(&of.pool).apply(&plan.writes, &own).await
    }

    async fn record(
        &self,
        snapshot: Snapshot,
        plan: Plan<PoolReport>,
        done: Applied,
    ) -> Result<Passed, PassError> {
        let pool = &snapshot.pool;
        let follows = plan.report.as_ref().map(|report| (report.reread, report.every));
        let passed = self.hand(pool).record(plan, done).await?;
        if let Some((reread, every)) = follows {
            self.groups.with(pool, |group| group.recorded(&snapshot, reread, every));
            self.reads.add(GroupKey::Of(ObjectName::of(pool.as_ref())), Priority::Change);
        }
        Ok(passed)
    }
}

impl Pools {
    fn hand(&self, pool: &Arc<MachinePool>) -> Hand<'_> {
        let Self { writer, stores, recorder, .. } = self;
        let (sessions, own) = (Some(&self.sessions), Object::Pool(Arc::clone(pool)));
        Hand { writer, stores, recorder, sessions, by: Self::NAME, own }
    }
}

/// The notes on a pool's writes.
struct Noted<'a> {
    groups: &'a Groups,
    pool: &'a MachinePool,
}

impl Notes for Noted<'_> {
    fn answered(&self, part: Part, write: &Write, answer: Result<(), &WriteError>) {
        use WriteError::{Forbidden, Invalid};
        self.groups.with(self.pool, |group| match (&write.verb, part) {
            // Whatever the answer, another token may be there now.
            (Verb::Token(_), _) => group.tokens = None,
            (_, Part::Create) => {
                group.refused_machines = matches!(answer, Err(Forbidden(_) | Invalid(_)));
            }
            (_, _) => {}
        });
    }
}

fn namespace_of(pool: &MachinePool) -> &str {
    pool.metadata.namespace.as_deref().unwrap_or_default()
}
