//! The status after the actions: only facts that came true.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::machine::{MachineStatus, WaitReason, WaitingFor};
use serde_json::Value;

use crate::{
    deferral,
    difference::difference,
    machine::draining,
    plan::{Action, Event, Next, OnFailure, Performed, Plan},
    snapshot::Snapshot,
    time::after,
    unwritten::{Unwritten, due},
};

/// The work left after the actions.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// A merge patch of `status` (the content of `status`, not the whole object); `None`: nothing
    /// changed, nothing to write. Written with the newest resource version that this pass has seen.
    pub status: Option<Value>,
    /// The status that is kept instead of being written.
    pub unwritten: Option<Unwritten>,
    /// Whether [`Plan::dispatch`], [`Plan::cancel`] and [`Plan::acknowledge`] hold. They are done
    /// only after the status was accepted, or kept, in the order cancel, acknowledge, dispatch.
    pub proceed: bool,
    /// The events for people.
    pub events: Vec<Event>,
    /// When to look again.
    pub next: Next,
}

impl Recorded {
    /// The same, with the Machine's generation after the actions: each action was on condition of the observed version,
    /// so no change of another client is in between.
    #[must_use]
    pub fn observing(mut self, generation: Option<i64>) -> Self {
        if let Some(status) = self.status.as_mut().filter(|_| self.proceed)
            && let Some(generation) = generation
        {
            status["observedGeneration"] = generation.into();
        }
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.status.observed_generation = generation;
        }
        self
    }
}

/// How soon a pass is repeated that the API server did not let through.
const WRITE_RETRY: Duration = Duration::from_secs(2);
/// How soon a pass is repeated that went on without a write, which a policy may refuse for as long as nothing is
/// changed.
const REFUSED_RETRY: Duration = Duration::from_secs(15);

/// Computes the writes of a pass. `performed` has one entry for each action of the plan; a missing one counts as
/// [`Performed::Skipped`]. `at`: when they were done.
pub fn record(
    snapshot: &Snapshot,
    plan: &Plan,
    performed: &[Performed],
    at: Timestamp,
) -> Recorded {
    let stored = snapshot.stored_status().cloned().unwrap_or_default();
    let results = || {
        let missing = std::iter::repeat(&Performed::Skipped);
        plan.actions.iter().zip(performed.iter().chain(missing))
    };
    let fatal = results()
        .filter(|(action, _)| action.on_failure() == OnFailure::Stop)
        .find_map(|(action, result)| Some((action, Obstacle::of(result)?)));
    if let Some((action, obstacle)) = fatal {
        return stopped(snapshot, action, &obstacle);
    }
    let mut status = plan.status.clone();
    let blocked = draining::record_evictions(snapshot, results(), &mut status);
    let owed = results().filter_map(|(action, result)| Some((action, owed(action, result)?)));
    let owed: Vec<_> = owed.collect();
    if let (None, Some((action, Obstacle::Failed(text)))) = (&status.waiting_for, owed.first()) {
        status.waiting_for = Some(not_written(snapshot, action, text));
    }
    let gone = plan.next == Next::Done && snapshot.machine.other_finalizers().is_empty();
    let patch = if gone { None } else { status_patch(&stored, &status) };
    let events = deferral::told(snapshot, plan.events.iter().cloned().chain(blocked));
    let keep = |_: &Value| deferral::keep(snapshot, plan, &status, &events, at);
    let unwritten = patch.as_ref().and_then(keep);
    Recorded {
        status: patch.filter(|_| unwritten.is_none()),
        proceed: true,
        events: if unwritten.is_some() { Vec::new() } else { events },
        next: match (owed.iter().map(|(_, obstacle)| obstacle.retry()).min(), &unwritten) {
            (Some(retry), _) => soon(&plan.next, after(snapshot.now, retry)),
            (None, Some(kept)) => plan.next.clone().by(WaitReason::DriverWorking, due(kept.since)),
            (None, None) => plan.next.clone(),
        },
        unwritten,
    }
}

/// Why the Node lacks a planned change. A heartbeat of its kubelet is enough for a conflict, and causes no pass.
fn owed(action: &Action, result: &Performed) -> Option<Obstacle> {
    let repeats = action.on_failure() == OnFailure::Repeat;
    repeats.then(|| Obstacle::of(result)).flatten()
}

fn soon(next: &Next, at: Timestamp) -> Next {
    let until = match next {
        Next::Done => return Next::Done,
        Next::OnChange => at,
        Next::Wait { until, .. } => at.min(*until),
    };
    Next::Wait { reason: WaitReason::ApiWriteFailed, until }
}

/// Why a pass cannot go on.
enum Obstacle {
    Conflict,
    Failed(String),
}

impl Obstacle {
    fn of(result: &Performed) -> Option<Self> {
        match result {
            Performed::Done | Performed::Gone => None,
            Performed::Conflict => Some(Self::Conflict),
            Performed::Failed(text) => Some(Self::Failed(text.clone())),
            Performed::Refused(_) => Some(Self::Failed("refused".to_owned())),
            Performed::Skipped => Some(Self::Failed("not tried".to_owned())),
        }
    }

    const fn retry(&self) -> Duration {
        match self {
            Self::Conflict => WRITE_RETRY,
            Self::Failed(_) => REFUSED_RETRY,
        }
    }
}

/// The plan is void: a precondition of it was not done. The operation's result, if there is one, stays unacknowledged
/// and is taken again.
fn stopped(snapshot: &Snapshot, action: &Action, obstacle: &Obstacle) -> Recorded {
    let old = snapshot.machine.status.clone().unwrap_or_default();
    let stored = snapshot.stored_status().cloned().unwrap_or_default();
    let until = after(snapshot.now, WRITE_RETRY);
    let status = match obstacle {
        Obstacle::Conflict => None,
        Obstacle::Failed(text) => {
            let waiting_for = Some(not_written(snapshot, action, text));
            let status = MachineStatus { waiting_for, ..old };
            status_patch(&stored, &status)
        }
    };
    // After a conflict, the unwritten part is planned anew from the current state.
    let told = status.as_ref().map(|_| deferral::told(snapshot, std::iter::empty()));
    Recorded {
        status,
        unwritten: None,
        proceed: false,
        events: told.unwrap_or_default(),
        next: Next::Wait { reason: WaitReason::ApiWriteFailed, until },
    }
}

/// Names the missing write, and since when.
fn not_written(snapshot: &Snapshot, action: &Action, text: &str) -> WaitingFor {
    let reason = WaitReason::ApiWriteFailed;
    let status = snapshot.machine.status.as_ref();
    let before = status.and_then(|it| it.waiting_for.as_ref()).filter(|it| it.reason == reason);
    let since = before.and_then(|before| before.since.clone());
    WaitingFor {
        reason,
        message: Some(format!("{}: {text}", action.name())),
        since: Some(since.unwrap_or(Time(snapshot.now))),
    }
}

/// The merge patch that turns one status into another; `None` if they are the same.
pub fn status_patch(old: &MachineStatus, new: &MachineStatus) -> Option<Value> {
    if old == new { None } else { difference(Some(old), new) }
}
