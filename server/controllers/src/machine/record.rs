//! Writes the status, or keeps it for the next write. Only if the API server accepted it, or need not yet, updates sessions, events and metrics.

use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::api::Patch;
use ostler_api::Machine;
use ostler_api::machine::{MachinePhase, MachineStatus};
use ostler_lifecycle::machine::asks_for_group;
use ostler_lifecycle::operation::{Dispatch, OperationView, Target};
use ostler_lifecycle::orphans::calls_for_a_scan;
use ostler_lifecycle::plan::{Event, Next, Plan};
use ostler_lifecycle::record::{Recorded, record};
use ostler_lifecycle::snapshot::Snapshot;
use ostler_lifecycle::time;
use ostler_sessions::SubmitError;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::execute::Executed;
use super::own_pool::left_group;
use super::{Machines, PassError, operation, reference};
use crate::EVENT_LOG;
use crate::kind::Kind as _;
use crate::kind::Passed;
use crate::metrics::Shape;
use crate::queue::Outcome;
use crate::target::TargetOf;
use crate::telling::tell;
use crate::watch::Author;

/// When to submit an operation again that the sessions did not accept.
const SUBMIT_AGAIN: Duration = Duration::from_secs(1);

impl Machines {
    pub(super) async fn write_down(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
        done: Executed,
    ) -> Result<Passed, PassError> {
        let generation = done.machine.metadata.generation;
        let recorded = record(snapshot, plan, &done.performed, (self.clock.0)());
        let recorded = recorded.observing(generation);
        let written = self.write_status(&done.machine, recorded.status.as_ref()).await;
        self.state.replacements.settle(plan, written.as_ref().map(|()| recorded.proceed));
        written?;
        self.keep(&snapshot.machine, &recorded);
        self.record_events(snapshot, recorded.events);
        let mut not_sent = None;
        if recorded.proceed {
            self.measure(snapshot, plan);
            let left = left_group(&snapshot.machine).filter(|_| asks_for_group(snapshot));
            if let Some(group) = left {
                self.left.ask(group);
            }
            not_sent = self.send(snapshot, plan);
        }
        let goes_on = done.changed && not_sent.is_none() && !done.failed;
        if goes_on && recorded.next != Next::Done {
            return Ok(Passed::Changed);
        }
        Ok(Passed::Settled(match not_sent {
            Some(later) => later,
            None if done.failed => Outcome::Failed,
            None => self.until(&recorded.next, snapshot.now),
        }))
    }

    /// Keeps the status that is to be written later. A pass without a result does not replace the kept status.
    fn keep(&self, machine: &Machine, recorded: &Recorded) {
        match &recorded.unwritten {
            Some(unwritten) => self.state.unwritten.set(machine.uid(), unwritten.clone()),
            None if recorded.proceed || recorded.status.is_some() => {
                self.state.unwritten.remove(machine.uid());
            }
            None => {}
        }
    }

    /// One patch per pass, and none if the status is unchanged. It is conditional on the newest version that the pass
    /// has seen, so that no operation is sent based on an outdated plan.
    async fn write_status(
        &self,
        machine: &Machine,
        status: Option<&Value>,
    ) -> Result<(), PassError> {
        let Some(status) = status else { return Ok(()) };
        let version = machine.meta().resource_version.clone();
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
        let api = self.writer.api(machine.namespace());
        let patch = Patch::Merge(&patch);
        let written = self.writer.patch_status::<Machine>(&api, machine.name(), patch).await;
        let what = "cannot write the status";
        let written = written.map_err(|error| PassError::of_write(what, error))?;
        let kept = written.status.as_ref().is_some_and(|it| it.operation.is_some());
        let dropped = status["operation"].is_object() && !kept;
        self.stores.machines.update(written, Author::new(Self::NAME, machine));
        if dropped { Err(PassError::Pruned) } else { Ok(()) }
    }

    fn measure(&self, snapshot: &Snapshot, plan: &Plan) {
        let machine = &snapshot.machine;
        let class = self.class_of(machine);
        let template = class.as_ref().and_then(|class| class.spec.node_template.as_ref());
        let instance_type = template.and_then(|template| template.get("instanceType")?.as_str());
        let shape = Shape { instance_type: instance_type.unwrap_or_default().to_owned() };
        let gone = plan.next == Next::Done;
        self.steps.passed(machine, &plan.status, gone, &shape, snapshot.now);
        self.trace_creation(machine, &plan.status, snapshot.now);
    }

    /// Tells the span of a creation that ends with this pass.
    fn trace_creation(&self, machine: &Machine, after: &MachineStatus, now: Timestamp) {
        use MachinePhase::{Available, CrashLoopBackOff, Failed, New, Pending, Running};
        let (before, after) = (machine.phase(), after.machine_phase());
        if !matches!(before, New | Pending | CrashLoopBackOff)
            || !matches!(after, Available | Running | Failed)
        {
            return;
        }
        let Some(begun) = &machine.metadata.creation_timestamp else { return };
        let took = Duration::try_from(now.duration_since(begun.0)).unwrap_or_default();
        let failed = (after == Failed).then_some("Failed");
        self.sessions.created(&Target::of_machine(machine), took, failed);
    }

    /// Submits the recorded operations to the sessions. Returns when to retry if the sessions refused an operation.
    fn send(&self, snapshot: &Snapshot, plan: &Plan) -> Option<Outcome> {
        let uid = snapshot.machine.uid();
        if let Some(how) = plan.hint {
            self.state.hints.used(uid, snapshot.hint.as_ref(), how);
        }
        if let Some(id) = &plan.cancel {
            self.sessions.cancel(id, "no longer needed");
        }
        if let Some(id) = &plan.acknowledge {
            self.state.refused.remove(uid);
            self.answers.recorded(&snapshot.operation);
            self.request_orphan_scan(snapshot);
            self.sessions.acknowledge(id);
        }
        plan.dispatch.as_ref().and_then(|dispatch| self.submit(&snapshot.machine, dispatch))
    }

    /// Several instances for one machine are a reason to scan for orphans.
    fn request_orphan_scan(&self, snapshot: &Snapshot) {
        let OperationView::Finished(finished) = &snapshot.operation else { return };
        let Err(failure) = &finished.outcome else { return };
        if calls_for_a_scan(failure.code)
            && let Some(class) = snapshot.class.known()
        {
            self.scans.ask(&self.settings.driver_name(class.provider.as_str()));
        }
    }

    fn submit(&self, machine: &Machine, dispatch: &Dispatch) -> Option<Outcome> {
        let (kind, id) = (dispatch.kind(), dispatch.id.as_str());
        let (uid, machine) = (machine.uid(), machine.name());
        let Err(refused) = self.sessions.submit(dispatch.clone()) else {
            debug!(machine, %kind, operation = id, "operation submitted");
            return None;
        };
        info!(machine, %kind, reason = %refused, "operation not submitted");
        if let Some(failed) = operation::never_sent(dispatch, &refused) {
            self.state.refused.set(uid, failed);
            return Some(Outcome::Again(Duration::ZERO));
        }
        Some(match refused {
            // A full queue needs a backoff.
            SubmitError::QueueFull { .. } => Outcome::Failed,
            SubmitError::NoDriver { .. }
            | SubmitError::LooksOnly { .. }
            | SubmitError::TargetBusy { .. }
            | SubmitError::FrameTooLarge { .. }
            | SubmitError::KindUnsupported { .. } => Outcome::Again(SUBMIT_AGAIN),
        })
    }

    fn until(&self, next: &Next, planned_at: Timestamp) -> Outcome {
        match next {
            Next::OnChange => Outcome::Again(self.settings.resync),
            Next::Done => Outcome::Done,
            Next::Wait { until, .. } => {
                Outcome::Again(time::until(*until, planned_at).min(self.settings.resync))
            }
        }
    }

    fn record_events(&self, snapshot: &Snapshot, events: Vec<Event>) {
        let node = match (snapshot.node.serving(), self.stores.targets.of(&snapshot.machine)) {
            (Some(node), TargetOf::Cluster(target)) => {
                Some((node.object_ref(&()), self.recorder.to(&target.client)))
            }
            _ => None,
        };
        for event in events {
            if event.warning {
                let reason = event.reason.name();
                let machine = snapshot.machine.name();
                warn!(target: EVENT_LOG, machine, reason, "{}", event.message);
            }
            let node = node.clone().filter(|_| event.on_node);
            let machine = (reference(&snapshot.machine), self.recorder.clone());
            for (regarding, recorder) in std::iter::once(machine).chain(node) {
                tell(&recorder, regarding, event.clone());
            }
        }
    }
}
