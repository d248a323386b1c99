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

use crate::bootstrap::Configs;
use crate::client::WriteError;
use crate::fleet::{FleetKind, Tools};
use crate::handover::Handover;
use crate::kind::PassError;
use crate::left_groups::GroupKey;
use crate::queue::{Priority, Queue};
use crate::watch::ObjectName;

/// Reconciles MachinePools.
pub(crate) struct Pools {
    pub(crate) tools: Tools,
    pub(crate) groups: Arc<Groups>,
    /// Where groups are read.
    pub(crate) reads: Arc<Queue<GroupKey>>,
    pub(crate) configs: Arc<Configs>,
    /// Requests of the previous leader are listed, and not awaited: this process repeats a request that arrives late.
    pub(crate) handover: Handover,
    pub(crate) term: Term,
}

impl FleetKind for Pools {
    const NAME: &'static str = "MachinePool";
    type Snapshot = Snapshot;
    type Report = PoolReport;

    fn tools(&self) -> &Tools {
        &self.tools
    }

    async fn observe(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        self.gather(name).await
    }

    fn plan(snapshot: &Snapshot) -> Plan<PoolReport> {
        plan(snapshot)
    }

    fn own(snapshot: &Snapshot) -> Object {
        Object::Pool(Arc::clone(&snapshot.pool))
    }

    fn answered(&self, of: &Snapshot, write: (Part, &Write), answer: Result<(), &WriteError>) {
        self.note(&of.pool, write, answer);
    }

    fn recorded(&self, snapshot: &Snapshot, plan: &Plan<PoolReport>) {
        let Some(report) = &plan.report else { return };
        let (pool, every) = (&snapshot.pool, report.every);
        self.groups.with(pool, |group| group.recorded(snapshot, report.reread, every));
        self.reads.add(GroupKey::Of(ObjectName::of(pool.as_ref())), Priority::Change);
    }
}

impl Pools {
    /// Notes the answer to a write.
    fn note(
        &self,
        pool: &MachinePool,
        (part, write): (Part, &Write),
        answer: Result<(), &WriteError>,
    ) {
        use WriteError::{Forbidden, Invalid};
        self.groups.with(pool, |group| match (&write.verb, part) {
            // Whatever the answer, another token may be there now.
            (Verb::Token(_), _) => group.tokens = None,
            (_, Part::Create) => {
                group.refused_machines = matches!(answer, Err(Forbidden(_) | Invalid(_)));
            }
            (_, _) => {}
        });
    }
}
