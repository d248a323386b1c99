//! Writes the status of a pool, and only then sends what stands in it.

use std::time::Duration;

use kube::api::Patch;
use ostler_api::MachinePool;
use ostler_lifecycle::class::Hold;
use ostler_lifecycle::operation::Dispatch;
use ostler_lifecycle::pool::{News, Plan, Snapshot, status_patch};
use ostler_lifecycle::time::until;
use serde_json::{Value, json};
use tracing::{debug, info};

use super::{BUSY, CALM, Done, Pools, Wrote, namespace_of};
use crate::events::Severity;
use crate::kind::Kind as _;
use crate::kind::{PassError, Passed};
use crate::queue::Outcome;
use crate::watch::{Author, ObjectName};

/// When to submit an operation again that the sessions did not accept.
const SUBMIT_AGAIN: Duration = Duration::from_secs(1);
/// When to look again at Machines that others wrote at the same time, or that are beyond what one pass writes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Pools {
    pub(super) async fn write_down(
        &self,
        snapshot: &Snapshot,
        plan: Plan,
        done: &Done,
    ) -> Result<Passed, PassError> {
        if done.changed {
            return Ok(Passed::Changed);
        }
        let pool = &snapshot.pool;
        if plan.finalizer == Hold::Remove {
            self.acknowledge(&plan);
            self.change_finalizer(pool, Hold::Remove).await?;
            self.groups.forget(&ObjectName::of(pool.as_ref()));
            return Ok(Passed::Settled(Outcome::Done));
        }
        if let Some(patch) = status_patch(pool.status.as_ref(), &plan.status) {
            self.put(pool, &patch).await?;
        }
        self.tell_news(pool, &plan.news);
        if plan.reread {
            self.groups.reread(pool);
        }
        let every = if plan.unsettled { BUSY } else { CALM };
        self.groups.with(pool, |group| group.every = Some(every));
        self.acknowledge(&plan);
        if !plan.dispatch.as_ref().is_none_or(|dispatch| self.submit(pool, dispatch)) {
            return Ok(Passed::Settled(Outcome::Again(SUBMIT_AGAIN)));
        }
        if done.wrote == Wrote::Failed {
            return Ok(Passed::Settled(Outcome::Failed));
        }
        if plan.reread || !plan.create.is_empty() {
            return Ok(Passed::Changed);
        }
        if plan.more || done.wrote == Wrote::Outdated {
            return Ok(Passed::Settled(Outcome::Again(LOOK_AGAIN)));
        }
        let due = self.groups.with(pool, |group| group.fresh_for(every)).unwrap_or(BUSY);
        let retry = plan.retry_at.map(|at| until(at, snapshot.now));
        let next = retry.map_or(due, |retry| due.min(retry));
        Ok(Passed::Settled(Outcome::Again(next)))
    }

    pub(super) fn tell_news(&self, pool: &MachinePool, all: &[News]) {
        for news in all {
            let severity = if news.warning { Severity::Warning } else { Severity::Normal };
            self.tell(pool, severity, news.reason, "Reconcile", news.message.clone());
        }
    }

    /// Whether the sessions accepted it.
    fn submit(&self, pool: &MachinePool, dispatch: &Dispatch) -> bool {
        let kind = dispatch.kind();
        match self.sessions.submit(dispatch.clone()) {
            Ok(()) => {
                debug!(pool = pool.name(), %kind, operation = %dispatch.id, "operation submitted");
                true
            }
            Err(refused) => {
                info!(pool = pool.name(), %kind, reason = %refused, "operation not submitted");
                false
            }
        }
    }

    fn acknowledge(&self, plan: &Plan) {
        if let Some(id) = &plan.acknowledge {
            self.sessions.acknowledge(id);
        }
    }

    async fn put(&self, pool: &MachinePool, status: &Value) -> Result<(), PassError> {
        let version = &pool.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
        let api = self.writer.api::<MachinePool>(namespace_of(pool));
        let written = self.writer.patch_status(&api, pool.name(), Patch::Merge(&patch)).await;
        let what = "cannot write the status of a pool";
        let written: MachinePool = written.map_err(|error| PassError::of_write(what, error))?;
        let kept = written.status.as_ref().is_some_and(|it| it.operation.is_some());
        let dropped = status.get("operation").is_some_and(Value::is_object) && !kept;
        self.stores.pools.update(written, Author::new(Self::NAME, pool));
        if dropped { Err(PassError::Pruned) } else { Ok(()) }
    }
}
