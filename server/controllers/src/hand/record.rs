//! Writes the status, and makes the requests that must not come earlier: in the same order for
//! every kind.

use std::time::Duration;

use ostler_lifecycle::operation::Dispatch;
use ostler_lifecycle::write::{Batch, Plan, Report, Verb, Write};
use serde_json::{Value, json};
use tracing::{debug, info};

use super::{Applied, Hand};
use crate::kind::{PassError, Passed};
use crate::queue::Outcome;

/// When to submit an operation again that the sessions did not accept.
const SUBMIT_AGAIN: Duration = Duration::from_secs(1);

impl Hand<'_> {
    /// Status, cancel, acknowledge, dispatch, events.
    pub(crate) async fn record<R: Report>(
        &self,
        plan: &Plan<R>,
        mut done: Applied,
    ) -> Result<Passed, PassError> {
        if let Some(patch) = plan.report.as_ref().and_then(|report| report.patch(&done.tried)) {
            self.put(&mut done, patch, R::NEEDED).await?;
        }
        if let Some(id) = &plan.cancel {
            self.sessions.cancel(id, "no longer needed");
        }
        if let Some(id) = &plan.acknowledge {
            self.sessions.acknowledge(id);
        }
        let submitted = plan.dispatch.as_ref().is_none_or(|dispatch| self.submit(dispatch));
        plan.events.iter().for_each(|event| self.tell(&self.own, event.clone()));
        if !submitted {
            return Ok(Passed::Settled(Outcome::Again(SUBMIT_AGAIN)));
        }
        Ok(done.passed(plan.next))
    }

    async fn put(
        &self,
        done: &mut Applied,
        status: Value,
        needed: &[&'static str],
    ) -> Result<(), PassError> {
        let given = |field: &&&str| status.get(**field).is_some_and(|it| !it.is_null());
        let needed: Vec<_> = needed.iter().filter(given).collect();
        let write = Verb::PatchStatus(json!({ "status": status }));
        let write = Write::new(done.own.clone(), write);
        self.go_on(&[Batch::own("cannot write the status", write)], &(), done).await?;
        let written = done.own.status();
        let kept = needed.iter().all(|field| written.get(**field).is_some_and(|it| !it.is_null()));
        if kept { Ok(()) } else { Err(PassError::Pruned) }
    }

    /// Whether the sessions accepted it.
    fn submit(&self, dispatch: &Dispatch) -> bool {
        let (of, kind) = (self.own.name(), dispatch.kind());
        match self.sessions.submit(dispatch.clone()) {
            Ok(()) => {
                debug!(of, %kind, operation = %dispatch.id, "operation submitted");
                true
            }
            Err(refused) => {
                info!(of, %kind, reason = %refused, "operation not submitted");
                false
            }
        }
    }
}
