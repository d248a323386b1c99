//! The writes of a check: marks of Machines, each on condition of the version that was judged, and its status.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::MachineHealthCheck;
use ostler_api::machine_health_check::{MachineHealthCheckStatus, UnhealthyMark};
use ostler_api::names::annotation::UNHEALTHY;
use serde_json::{Value, json};

use super::{Decision, Snapshot, decide};
use crate::difference::difference;
use crate::plan::{Event, EventAction, EventReason};
use crate::time::until;
use crate::write::{Batch, Next, Object, Pace, Part, Plan, Report, Same, Tried, Verb, Write};

/// The least time between two passes without an event.
const PAUSE: Duration = Duration::from_secs(1);

/// The status of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckReport {
    check: Arc<MachineHealthCheck>,
    status: MachineHealthCheckStatus,
}

impl Report for CheckReport {
    const NEEDED: &'static [&'static str] = &[];

    fn patch(&self, _: &Tried) -> Option<Value> {
        difference(self.check.status.as_ref(), &self.status)
    }
}

/// Decides what to do about a check.
pub fn plan(snap: &Snapshot) -> Plan<CheckReport> {
    let Decision { mark, unmark, status, news, again } = decide(snap);
    let patch = |mark: Option<&UnhealthyMark>| {
        let mark = mark.and_then(|mark| serde_json::to_string(mark).ok());
        Verb::Patch(json!({ "metadata": { "annotations": { UNHEALTHY: mark } } }))
    };
    let confirm = snap.check.as_ref().filter(|_| !mark.is_empty()).map(|check| {
        let read = Write::new(Object::Check(Arc::clone(check)), Verb::Confirm(Same::Spec));
        Batch::own("cannot read a machine health check", read)
    });
    let unmarked =
        unmark.into_iter().map(|machine| Write::new(Object::Machine(machine), patch(None)));
    let marked = mark.into_iter().map(|(machine, mark)| {
        let UnhealthyMark { check, reason, message, .. } = &mark;
        let note = format!("machine health check {check}: {reason}: {message}");
        let event =
            Event::warning(EventReason::MachineMarkedUnhealthy, note).doing(EventAction::Check);
        let write = Write::new(Object::Machine(machine), patch(Some(&mark)));
        Write { of_itself: true, ..write }.telling([event])
    });
    let what = "cannot write what a health check found";
    let machines = [
        Batch::of(Part::Update, what, unmarked).paced(Pace::Beside(usize::MAX)),
        Batch::of(Part::Mark, what, marked).paced(Pace::Beside(usize::MAX)),
    ];
    let writes =
        confirm.into_iter().chain(machines).filter(|batch| !batch.writes.is_empty()).collect();
    let next = again.map(|at| until(at, snap.now).max(PAUSE));
    let report = snap.check.clone().zip(status);
    Plan {
        report: report.map(|(check, status)| CheckReport { check, status }),
        events: news,
        ..Plan::only(writes, next.map_or(Next::OnChange, Next::After))
    }
}
