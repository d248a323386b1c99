//! The writes of a set, in order, with their consequences: a set makes no Machine before its releases are done
//! (INV-11), and deletes none before its adoptions are done (INV-14).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_api::{
    Machine, MachineSet,
    names::annotation::{RELEASED_BY, RESERVE_TEMPLATE},
    names::{finalizer, label},
};
use serde_json::{Value, json};

use super::status::is_alone;
use super::{
    BURST, Decision, Failures, Snapshot, Victim, decide, is_news, machine, machine_name,
    owner_reference, spec_patch, status, told,
};
use crate::autoscaler::capacity;
use crate::copies::MadeFor;
use crate::difference::{difference, merge_patch};
use crate::hold::FinalizerChange;
use crate::plan::{Event, EventAction, EventReason};
use crate::replicas::Filled;
use crate::time::until;
use crate::write::{
    Answers, Batch, Next, Object, Only, Pace, Part, Plan, Report, Same, Taken, Then, Tried, Verb,
    Write, finalizer_patch,
};

/// How long the cache may take to show a write.
pub const LAG: Duration = Duration::from_secs(5);

/// Letters of generated names, as Kubernetes has them: no vowels, and none that look alike.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The status of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetReport {
    /// The set.
    pub set: Arc<MachineSet>,
    /// The decision to report.
    pub decision: Decision,
    now: Timestamp,
}

impl Report for SetReport {
    const NEEDED: &'static [&'static str] = &["replacementRetry"];

    fn patch(&self, tried: &Tried) -> Option<Value> {
        let text = |part| tried.refusal(part).map(str::to_owned);
        let failures = Failures { create: text(Part::Create), delete: text(Part::Delete) };
        let new = status(&self.set, &self.decision, &failures, self.now);
        let news = is_news(&self.set, &new);
        news.then(|| difference(self.set.status.as_ref(), &new)).flatten()
    }
}

/// Decides what to do about a set.
pub fn plan(snapshot: &Snapshot) -> Plan<SetReport> {
    let set = &snapshot.set;
    let decision = decide(snapshot);
    if decision.finalizer != FinalizerChange::Keep {
        return hold(set, decision.finalizer);
    }
    if let Some(filled) = &decision.fill {
        return fill(set, filled);
    }
    // Its Machines might be gone before the freeze is looked at, and no event would say why.
    if !decision.delete.is_empty() && snapshot.freeze_due {
        return Plan::only(Vec::new(), Next::After(LAG));
    }
    let new = status(set, &decision, &Failures::default(), snapshot.now);
    let again = decision.streak.until().map(|at| until(at, snapshot.now));
    let next = if decision.patches.len() > BURST || decision.streak.is_new() {
        Next::Now
    } else {
        Next::After(again.map_or(snapshot.again, |again| again.min(snapshot.again)))
    };
    Plan {
        events: told::events(set, &decision, &new),
        writes: writes(snapshot, &decision),
        report: Some(SetReport { set: Arc::clone(set), now: snapshot.now, decision }),
        ..Plan::only(Vec::new(), next)
    }
}

fn hold(set: &Arc<MachineSet>, hold: FinalizerChange) -> Plan<SetReport> {
    let patch = finalizer_patch(&set.metadata, finalizer::MACHINE, hold);
    let write = patch.map(|patch| Write::new(Object::Set(Arc::clone(set)), Verb::Patch(patch)));
    let batch = write.map(|write| Batch::own("cannot change the finalizer of a set", write));
    let next = if hold == FinalizerChange::Remove { Next::OnChange } else { Next::Now };
    Plan::only(batch.into_iter().collect(), next)
}

/// Writes the wanted number, and records an event before any consequence.
fn fill(set: &Arc<MachineSet>, filled: &Filled) -> Plan<SetReport> {
    let patch = json!({ "spec": { "replicas": filled.replicas } });
    let event =
        Event::normal(EventReason::ReplicasAbsent, filled.note.clone()).doing(EventAction::Scale);
    let event = Event { warning: filled.warning, ..event };
    let write = Write::new(Object::Set(Arc::clone(set)), Verb::Patch(patch)).telling([event]);
    Plan::only(vec![Batch::own("cannot write the replicas of a set", write)], Next::Now)
}

fn writes(snapshot: &Snapshot, decision: &Decision) -> Vec<Batch> {
    let set = &snapshot.set;
    let Decision { adopt, release, patches, repeat, take: spares, create, delete, .. } = decision;
    let makes = *create > 0 || !spares.is_empty() || !repeat.is_empty();
    let confirm = (makes || !adopt.is_empty() || !delete.is_empty()).then(|| {
        let read = Verb::Confirm(Same::AllButStatus(LAG));
        Batch::own("cannot read a set", Write::new(Object::Set(Arc::clone(set)), read))
    });
    let release = release.iter().take(BURST).filter_map(|machine| let_go(set, machine));
    let adopt = adopt.iter().take(BURST).map(|machine| take(set, machine));
    let update = patches.iter().take(BURST).map(|(machine, patch)| {
        Write::new(Object::Machine(Arc::clone(machine)), Verb::Patch(patch.clone()))
    });
    let delete = delete.iter().map(|victim| delete_victim(snapshot, victim));
    let left = decision.left.iter().map(|copy| {
        Write::new(Object::Set(Arc::clone(set)), Verb::DeleteCopy(Box::new(copy.clone())))
    });
    let spares = spares.iter().map(|machine| from_reserve(set, machine));
    let Snapshot { machines, unanswered, seed, .. } = snapshot;
    let names = new_names(set.name(), (machines, unanswered), *seed, *create);
    let names = repeat.iter().cloned().chain(names);
    let create: Vec<_> = names.map(|name| make(snapshot, &name)).collect();
    // The missing object is watched, and wakes the set.
    let watched = create.iter().any(|write| matches!(write.verb, Verb::Refuse(_)));
    let other = if watched { Then::Again(snapshot.again) } else { Then::Repeat };
    let others = [
        Batch::of(Part::Release, "cannot release a machine", release),
        Batch::of(Part::Adopt, "cannot adopt a machine", adopt),
        Batch::of(Part::Update, "cannot update a machine from its template", update)
            .paced(Pace::Beside(BURST)),
        Batch::of(Part::Delete, "cannot delete a machine", delete)
            .paced(Pace::Beside(BURST))
            .after(Part::Adopt),
        Batch::of(Part::Delete, "cannot delete a copy of a template that no machine has", left)
            .paced(Pace::Beside(BURST)),
        Batch::of(Part::Take, "cannot take a machine from a reserve", spares)
            .paced(Pace::Beside(BURST))
            .after(Part::Release)
            .answering(TAKEN),
        Batch::of(Part::Create, "cannot create a machine", create)
            .paced(Pace::Doubling)
            .after(Part::Release)
            .answering(Answers { other, ..Answers::OTHERS }),
    ];
    let all = confirm.into_iter().chain(others).chain(show_to_autoscalers(snapshot));
    all.filter(|batch| !batch.writes.is_empty()).collect()
}

/// The class's shape of a Node, so that Cluster API's autoscaler scales the set from nothing.
fn show_to_autoscalers(snapshot: &Snapshot) -> Option<Batch> {
    let set = &snapshot.set;
    let mut metadata = set.metadata.clone();
    let class = snapshot.class.as_deref().filter(|_| is_alone(set) && !set.is_deleting())?;
    capacity::derive(&mut metadata, Some(class), &set.spec.template.spec);
    let changed = merge_patch(&json!(set.metadata.annotations), &json!(metadata.annotations))?;
    let patch = json!({ "metadata": { "annotations": changed } });
    let write = Write::new(Object::Set(Arc::clone(set)), Verb::Patch(patch));
    Some(Batch::own("cannot write what autoscalers read of a set", write))
}

/// INV-13: lets a Machine go whose labels do not match any more, and says so.
fn let_go(set: &MachineSet, machine: &Arc<Machine>) -> Option<Write> {
    let mut owners = machine.metadata.owner_references.iter().flatten();
    let at = owners.position(|owner| owner.uid == set.uid())?;
    let path = format!("/metadata/ownerReferences/{at}");
    let mut edit = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": machine.uid() }),
        json!({ "op": "test", "path": format!("{path}/uid"), "value": set.uid() }),
        json!({ "op": "remove", "path": path }),
    ];
    if machine.metadata.annotations.is_none() {
        edit.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
    }
    edit.push(json!({ "op": "add", "path": released_by(), "value": set.uid() }));
    let name = machine.name();
    let note = format!("released Machine {name}: its labels no longer match spec.selector");
    let event = Event::warning(EventReason::ReleasedMachine, note).doing(EventAction::Release);
    Some(Write::new(Object::Machine(Arc::clone(machine)), Verb::Edit(edit)).telling([event]))
}

/// INV-13: makes the set the controller of a Machine that has none, and says so. References of others stay; the
/// controller comes first, since autoscalers read the first reference.
fn take(set: &MachineSet, machine: &Arc<Machine>) -> Write {
    let owner = json!(owner_reference(set));
    let (path, value) = match machine.metadata.owner_references {
        None => ("/metadata/ownerReferences", json!([owner])),
        Some(_) => ("/metadata/ownerReferences/0", owner),
    };
    let mut edit = vec![json!({ "op": "add", "path": path, "value": value })];
    if machine.annotation(RELEASED_BY).is_some() {
        edit.push(json!({ "op": "remove", "path": released_by() }));
    }
    let note = format!("adopted machine {}: its labels match", machine.name());
    let event = Event::normal(EventReason::AdoptedMachine, note).doing(EventAction::Adopt);
    Write::new(Object::Machine(Arc::clone(machine)), Verb::Edit(edit)).telling([event])
}

/// After losing a Machine to another set, or finding it gone, the set looks again immediately: it takes another
/// Machine, or makes one.
const TAKEN: Answers = Answers { missing: Then::Repeat, ..Answers::OTHERS };

/// INV-13: one write makes the Machine the set's, on condition that no other set took it meanwhile: controller, labels
/// and Node template, so that the Node opens. The reserve comes first in no list any more, since autoscalers read the
/// first owner.
fn from_reserve(set: &MachineSet, machine: &Arc<Machine>) -> Write {
    let made = super::machine(set, machine.name());
    let others = machine.metadata.owner_references.iter().flatten();
    let others = others.filter(|owner| owner.controller != Some(true)).cloned();
    let owners: Vec<_> = std::iter::once(owner_reference(set)).chain(others).collect();
    let reserve = machine.label(label::RESERVE).unwrap_or_default();
    let without = |all: Option<BTreeMap<String, String>>, name: &str| {
        let all = all.unwrap_or_default().into_iter().map(|(name, value)| (name, json!(value)));
        all.chain([(name.to_owned(), Value::Null)]).collect::<BTreeMap<_, _>>()
    };
    let labels = without(made.metadata.labels, label::RESERVE);
    let annotations = without(made.metadata.annotations, RESERVE_TEMPLATE);
    let patch = json!({
        "metadata": { "ownerReferences": owners, "labels": labels, "annotations": annotations },
        "spec": spec_patch(&machine.spec, &made.spec).unwrap_or_else(|| json!({}))
    });
    let note = format!("took machine {} from reserve {reserve}", machine.name());
    let event = Event::normal(EventReason::TookFromReserve, note).doing(EventAction::Take);
    Write::new(Object::Machine(Arc::clone(machine)), Verb::Patch(patch)).telling([event]).awaited()
}

fn released_by() -> String {
    format!("/metadata/annotations/{}", RELEASED_BY.replace('/', "~1"))
}

/// INV-12, INV-13: a Machine that changed since it was chosen may have become available, or have been released.
fn delete_victim(snapshot: &Snapshot, Victim { machine, cause }: &Victim) -> Write {
    let of = || Object::Machine(Arc::clone(machine));
    // As upstream's set controller does it for a machine controller of another process.
    let shown = (!snapshot.runs_machines).then(|| {
        let status = json!({ "status": {
            "currentStatus": { "phase": "Terminating", "lastUpdateTime": snapshot.now },
            "lastOperation": {
                "type": "Delete", "state": "Processing", "lastUpdateTime": snapshot.now,
                "description": "Deleting machine from cloud provider"
            }
        } });
        Box::new(Write::new(of(), Verb::PatchStatus(status)).only(Only::Any))
    });
    Write { then: shown, ..remove(machine, cause) }
}

/// Deletes a Machine that is unchanged since the choice.
pub(crate) fn remove(machine: &Arc<Machine>, cause: &impl Debug) -> Write {
    let name = machine.name();
    let note = format!("Deleted machine: {name} ({cause:?})");
    let done = Event::normal(EventReason::SuccessfulDelete, note).doing(EventAction::Delete);
    let note = format!("cannot delete machine {name}");
    let refused = Event::warning(EventReason::FailedDelete, note).doing(EventAction::Delete);
    Write::new(Object::Machine(Arc::clone(machine)), Verb::Delete)
        .telling([done])
        .or_telling(refused)
        .awaited()
}

/// INV-11: without its copy, no Machine is created; an earlier sent name is still awaited.
fn make(snapshot: &Snapshot, name: &str) -> Write {
    let set = &snapshot.set;
    let taken = Taken::Controlled(set.uid().to_owned());
    let write = create(machine(set, name), Verb::Create(taken));
    match snapshot.copies.as_ref().map(|copies| copies.copy(MadeFor::set(set), name)) {
        None => write,
        Some(Ok(copy)) => Write { first: Some(Box::new(copy)), ..write },
        Some(Err(fault)) => Write { verb: Verb::Refuse(fault.message), ..write },
    }
}

/// Creates a Machine.
pub(crate) fn create(machine: Machine, verb: Verb) -> Write {
    let name = machine.name();
    let note = format!("Created Machine: {name}");
    let done = Event::normal(EventReason::SuccessfulCreate, note).doing(EventAction::Create);
    let refused = "cannot create a machine".to_owned();
    let refused = Event::warning(EventReason::FailedCreate, refused).doing(EventAction::Create);
    Write::new(Object::Machine(Arc::new(machine)), verb)
        .telling([done])
        .or_telling(refused)
        .awaited()
}

/// Names unused by the Machines. Each is repeated until its creation is answered.
pub(crate) fn new_names(
    owner: &str,
    (machines, unanswered): (&[Arc<Machine>], &[String]),
    mut seed: u64,
    count: usize,
) -> Vec<String> {
    let mut names = Vec::with_capacity(count);
    while names.len() < count {
        let (mut rest, mut suffix) = (mixed(&mut seed), String::new());
        for _ in 0..5 {
            let at = usize::try_from(rest % 27).unwrap_or(0);
            suffix.extend(LETTERS.get(at).copied().map(char::from));
            rest /= 27;
        }
        let name = machine_name(owner, &suffix);
        let taken = machines.iter().any(|machine| machine.name() == name);
        if !taken && !names.contains(&name) && !unanswered.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The next number of SplitMix64.
const fn mixed(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
