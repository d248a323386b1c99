//! The writes of a reserve: deletions, then creations.

use std::sync::Arc;

use ostler_api::machine_reserve::ReserveConditionType;
use serde_json::Value;

use super::{Decision, Snapshot, decide, status, template};
use crate::difference::difference;
use crate::plan::{Event, EventAction, EventReason};
use crate::set::{BURST, LAG, create, new_names, remove};
use crate::time::until;
use crate::write::{
    Batch, Next, Object, Pace, Part, Plan, Report, Same, Taken, Tried, Verb, Write,
};

/// The status of a reserve.
#[derive(Debug, Clone)]
pub struct ReserveReport {
    snapshot: Arc<Snapshot>,
    /// Names of Machines that the pass makes.
    made: Vec<String>,
    /// The decision to report.
    pub decision: Decision,
}

impl Report for ReserveReport {
    const NEEDED: &'static [&'static str] = &["replacementRetry"];

    fn patch(&self, tried: &Tried) -> Option<Value> {
        let Self { snapshot, made, decision } = self;
        let new = status::status(snapshot, decision, made, tried.refusal(Part::Create));
        difference(self.snapshot.reserve.status.as_ref(), &new)
    }
}

/// Decides what to do about a reserve.
pub fn plan(snapshot: &Snapshot) -> Plan<ReserveReport> {
    let decision = decide(snapshot);
    let again = decision.streak.until().map(|at| until(at, snapshot.now));
    let again = again.into_iter().chain((decision.held > 0).then_some(LAG)).min();
    let made = made(snapshot, &decision);
    let next = if decision.streak.is_new() {
        Next::Now
    } else {
        Next::After(again.map_or(snapshot.again, |again| again.min(snapshot.again)))
    };
    Plan {
        events: told(snapshot, &decision).into_iter().collect(),
        writes: writes(snapshot, &decision, &made),
        report: Some(ReserveReport { snapshot: Arc::new(snapshot.clone()), made, decision }),
        ..Plan::only(Vec::new(), next)
    }
}

/// Told once: why no Machines are made.
fn told(snapshot: &Snapshot, decision: &Decision) -> Option<Event> {
    let (reason, text) = decision.broken.as_ref()?;
    let status = snapshot.reserve.status.as_ref();
    let before = status.and_then(|it| it.condition(&ReserveConditionType::Valid));
    let same = before.is_some_and(|it| it.reason == *reason && it.message == *text);
    (!same).then(|| {
        Event::warning(EventReason::ValidationFailed, text.clone()).doing(EventAction::Check)
    })
}

/// Names whose creation is sent.
fn made(snapshot: &Snapshot, decision: &Decision) -> Vec<String> {
    let Snapshot { reserve, machines, unanswered, seed, .. } = snapshot;
    let new = new_names(reserve.name(), (machines, unanswered), *seed, decision.create);
    decision.repeat.iter().cloned().chain(new).collect()
}

fn writes(snapshot: &Snapshot, decision: &Decision, made: &[String]) -> Vec<Batch> {
    let Snapshot { reserve, target, .. } = snapshot;
    let confirm = || {
        let read = Verb::Confirm(Same::AllButStatus(LAG));
        Batch::own("cannot read a reserve", Write::new(Object::Reserve(Arc::clone(reserve)), read))
    };
    let delete = decision.delete.iter().map(|(machine, cause)| remove(machine, cause));
    let update = decision.update.iter().take(BURST).map(|(machine, patch)| {
        Write::new(Object::Machine(Arc::clone(machine)), Verb::Patch(patch.clone()))
    });
    let made = target.facts().into_iter().flat_map(|facts| {
        let make = |name: &String| {
            let taken = Taken::Controlled(reserve.uid().to_owned());
            create(template::machine(reserve, &facts, name), Verb::Create(taken))
        };
        made.iter().map(make).collect::<Vec<_>>()
    });
    let others = [
        Batch::of(Part::Update, "cannot update a machine from its template", update)
            .paced(Pace::Beside(BURST)),
        // A Machine that a set takes meanwhile belongs to the set.
        Batch::of(Part::Delete, "cannot delete a machine", delete).paced(Pace::Beside(BURST)),
        // INV-11: not in place of an existing Machine.
        Batch::of(Part::Create, "cannot create a machine", made)
            .paced(Pace::Doubling)
            .after(Part::Delete),
    ];
    let mut all: Vec<_> = others.into_iter().filter(|batch| !batch.writes.is_empty()).collect();
    if all.iter().any(|batch| batch.part != Part::Update) {
        all.insert(0, confirm());
    }
    all
}
