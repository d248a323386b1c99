//! The writes of a deployment, in order: marks before replicas, so that no set deletes another Machine than the chosen.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine_deployment::MachineDeploymentStatus;
use ostler_api::{MachineDeployment, MachineSet};
use serde_json::Value;

use super::decide;
use super::plan::{Decision, NodeWrite, SetWrite};
use super::snapshot::Snapshot;
use super::status;
use crate::plan::{Event, EventReason, Performed};
use crate::time::until;
use crate::write::{
    Answers, Batch, Next, Object, Only, Pace, Part, Plan, Report, Same, Taken, Then, Tried, Verb,
    Write,
};

/// Concurrent writes to Nodes.
const NODES_AT_ONCE: usize = 8;
/// When to write again to Nodes that changed meanwhile: not before the cache has them.
const NODES_AGAIN: Duration = Duration::from_millis(100);
/// When to look again while a set cannot be read.
const UNREADABLE: Duration = Duration::from_mins(1);

/// The status and outcomes of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentReport {
    deployment: Arc<MachineDeployment>,
    status: MachineDeploymentStatus,
    /// Name of the set that is created.
    set: Option<String>,
    now: Timestamp,
}

impl Report for DeploymentReport {
    const NEEDED: &'static [&'static str] = &[];

    fn patch(&self, tried: &Tried) -> Option<Value> {
        let mut status = self.status.clone();
        match (tried.first(Part::Create), &self.set) {
            (Some(Performed::Done), Some(set)) => status::created(&mut status, set, self.now),
            (Some(Performed::Conflict), _) => status::name_is_taken(&mut status),
            (Some(Performed::Failed(why)), _) => {
                let why = format!("{NOT_CREATED}: {why}");
                status::creation_failed(&mut status, why, self.now);
            }
            (_, _) => {}
        }
        status::patch(&self.deployment, &status)
    }
}

const NOT_CREATED: &str = "cannot create a machine set";

/// Decides what to do about a deployment.
pub fn plan(snapshot: &Snapshot) -> Plan<DeploymentReport> {
    // It may be the set of the current template, of which there must not be two.
    if let Some(broken) = &snapshot.unreadable {
        let note = format!("nothing is done until it is fixed or deleted: {broken}");
        let events = vec![Event::warning(EventReason::MachineSetUnreadable, note)];
        return Plan { events, ..Plan::only(Vec::new(), Next::After(UNREADABLE)) };
    }
    let deployment = &snapshot.deployment;
    let decision = decide(snapshot);
    let next = decision.next.map(|at| until(at, snapshot.now));
    let next = next.map_or(snapshot.again, |next| next.min(snapshot.again));
    let next = if decision.changes_anything() { Next::Now } else { Next::After(next) };
    let mut writes = writes(deployment, &decision);
    let Decision { events, status, create, .. } = decision;
    // Without the finalizer there may be nothing left to write to.
    let is_kept = !deployment.is_deleting()
        || deployment.has_finalizer() && !writes.iter().any(|batch| batch.part == Part::Own);
    let report = is_kept.then(|| DeploymentReport {
        deployment: Arc::clone(deployment),
        status,
        set: create.map(|set| set.name().to_owned()),
        now: snapshot.now,
    });
    // An event that the next pass would not repeat goes with the write that causes it.
    let last = writes.iter_mut().rfind(|batch| matches!(batch.part, Part::Own | Part::Scale));
    match last.and_then(|batch| batch.writes.last_mut()) {
        Some(last) => {
            last.told.extend(events);
            Plan { report, ..Plan::only(writes, next) }
        }
        None => Plan { report, events, ..Plan::only(writes, next) },
    }
}

fn writes(deployment: &Arc<MachineDeployment>, decision: &Decision) -> Vec<Batch> {
    let own = || Object::Deployment(Arc::clone(deployment));
    let stop = Answers { missing: Then::GoOn, ..Answers::OWN };
    let confirm = decision.concerns_machines().then(|| {
        Batch::own("cannot read the deployment", Write::new(own(), Verb::Confirm(Same::Spec)))
    });
    let marks = decision.machines.iter().map(|(machine, patch)| {
        Write::new(Object::Machine(Arc::clone(machine)), Verb::Patch(patch.clone()))
    });
    let nodes = decision.nodes.iter().map(|NodeWrite { machine, node, patch }| {
        let of = Object::Node(Arc::clone(node), Arc::clone(machine));
        Write::new(of, Verb::Patch(patch.clone()))
    });
    let scaled = decision.sets.iter().map(scale);
    let gone = decision.delete.iter().map(|set| remove(deployment, set));
    let others = [
        Batch::of(Part::Mark, "cannot mark a machine for deletion", marks).answering(stop),
        // They are for schedulers and autoscalers, and the rollout goes on without.
        Batch::of(Part::Tell, "cannot say on a node that it is being replaced", nodes)
            .paced(Pace::Beside(NODES_AT_ONCE))
            .answering(Answers { conflict: Then::NotBefore(NODES_AGAIN), ..Answers::OTHERS }),
        // Of another set of that name the watch tells.
        Batch::of(Part::Scale, "cannot write a machine set", scaled)
            .answering(Answers { missing: Then::Outdated, ..Answers::OWN }),
        Batch::of(
            Part::Create,
            NOT_CREATED,
            decision.create.iter().map(|set| make(decision, deployment, set)),
        )
        .answering(Answers {
            missing: Then::Outdated,
            // The next pass gives it another name.
            conflict: Then::Again(Duration::ZERO),
            busy: Then::Stop,
            other: Then::Repeat,
        }),
        Batch::of(Part::Delete, "cannot delete a machine set", gone).answering(stop),
    ];
    let changed = decision.deployment.iter().map(|patch| {
        Batch::own("cannot write the deployment", Write::new(own(), Verb::Patch(patch.clone())))
    });
    let all = confirm.into_iter().chain(others).chain(changed);
    all.filter(|batch| !batch.writes.is_empty()).collect()
}

/// The controller of a set writes its status all the time. For a scale-down, a set with more available Machines than
/// before counts as changed: Machines that were to be deleted may be available now.
fn scale(SetWrite { set, patch, event }: &SetWrite) -> Write {
    let wanted = patch.pointer("/spec/replicas").and_then(Value::as_i64);
    let is_lowered = wanted.is_some_and(|wanted| wanted < set.spec.replicas().into());
    let of = Object::Set(Arc::clone(set));
    let available = is_lowered.then(|| of.available());
    Write::new(of, Verb::Patch(patch.clone()))
        .only(Only::Newest { available })
        .telling(event.clone())
        .awaited()
}

/// The name follows from the template, so that a creation whose answer was lost is found by it.
fn make(decision: &Decision, deployment: &MachineDeployment, set: &MachineSet) -> Write {
    let taken = Taken::SetOf(deployment.uid().to_owned());
    Write::new(Object::Set(Arc::new(set.clone())), Verb::Create(taken))
        .telling(decision.created.clone())
        .or_telling(Event::warning(EventReason::MachineSetCreateError, NOT_CREATED.to_owned()))
        .awaited()
}

/// A superfluous set may have been scaled up since the snapshot, and would take its Machines along. A deleted
/// deployment takes all its own sets along: with `--cascade=orphan` the garbage collector has freed the set, which the
/// cache may not show yet.
fn remove(deployment: &MachineDeployment, set: &Arc<MachineSet>) -> Write {
    let write = Write::new(Object::Set(Arc::clone(set)), Verb::Delete);
    let uid = deployment.uid().to_owned();
    if deployment.is_deleting() { write.only(Only::ControlledBy(uid)) } else { write }
}
