//! The writes of a pool, in order, and what follows from each answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_api::{
    Machine, ProviderId,
    machine_pool::MachinePoolStatus,
    names::{annotation::INSTANCE_GONE, finalizer},
};
use serde_json::{Value, json};

use super::{
    BURST_OF_MACHINES, Decision, Snapshot, Victim, config, decide, owner_reference, token,
};
use crate::{
    class::FinalizerChange,
    copies::NewCopy,
    difference::difference,
    plan::{Event, EventAction, EventReason, TokenRequest},
    set,
    time::until,
    write::{
        Answers, Batch, Next, Object, OfInstance, Only, Pace, Part, Plan, Report, Same, Taken,
        Then, TokenWrite, Tried, Verb, Write, finalizer_patch,
    },
};

/// How often a group is read in which nothing is to be done.
pub const CALM: Duration = Duration::from_mins(1);
/// How often a changing group is read. Two looks within this time count once.
pub const BUSY: Duration = Duration::from_secs(10);
/// When to look again at Machines with concurrent writes of others, or beyond the limit of a pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The status of a pool, and its consequences for reads of the group.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolReport {
    old: Option<MachinePoolStatus>,
    new: MachinePoolStatus,
    /// The group has to be read before the next decision.
    pub reread: bool,
    /// How often the group is read.
    pub every: Duration,
}

impl Report for PoolReport {
    const NEEDED: &'static [&'static str] = &["operation", "bootstrapConfigs"];

    fn patch(&self, _: &Tried) -> Option<Value> {
        difference(self.old.as_ref(), &self.new)
    }
}

/// Decides what to do about a pool.
pub fn plan(snap: &Snapshot) -> Plan<PoolReport> {
    let pool = &snap.pool;
    if pool.is_deleting() && !pool.has_finalizer() && snap.machines.is_empty() {
        // The group is gone. While a finalizer of others holds it, the driver is not asked for that again.
        return Plan::only(Vec::new(), Next::OnChange);
    }
    let decision = decide(snap);
    let own = |patch| Write::new(Object::Pool(Arc::clone(pool)), Verb::Patch(patch));
    let own = |patch| Batch::own("cannot change a pool", own(patch));
    if decision.finalizer != FinalizerChange::Keep {
        let patch = finalizer_patch(&pool.metadata, finalizer::POOL, decision.finalizer);
        let last = decision.finalizer == FinalizerChange::Remove;
        let next = if last { Next::OnChange } else { Next::Now };
        let tokens = if last { without_tokens(snap) } else { None };
        let only = Plan::only(tokens.into_iter().chain(patch.map(own)).collect(), next);
        return Plan { acknowledge: decision.acknowledge, ..only };
    }
    if let Some(replicas) = decision.replicas {
        let mut batch = own(json!({ "spec": { "replicas": replicas } }));
        batch.writes =
            batch.writes.into_iter().map(|it| it.telling(decision.reset.clone())).collect();
        return Plan::only(vec![batch], Next::Now);
    }
    let every = if decision.unsettled { BUSY } else { CALM };
    let is_noted = config::is_new(pool.status.as_ref(), &decision.status);
    let next = if !decision.create.is_empty() || decision.token.is_some() || is_noted {
        Next::Now
    } else if decision.more {
        Next::After(LOOK_AGAIN)
    } else {
        Next::After(decision.retry_at.map_or(every, |at| every.min(until(at, snap.now))))
    };
    let writes = writes(snap, &decision);
    let Decision { status, reread, acknowledge, dispatch, news, .. } = decision;
    let report = PoolReport { old: pool.status.clone(), new: status, reread, every };
    let (report, events) = (Some(report), news);
    Plan { report, acknowledge, dispatch, events, ..Plan::only(writes, next) }
}

fn writes(snap: &Snapshot, decision: &Decision) -> Vec<Batch> {
    let Decision { create, patches, instances, gone, delete, token, .. } = decision;
    let token = token.clone().map(|token| with_token(snap, token));
    let copy = decision.copy.clone().map(|copy| with_copy(snap, copy));
    let left = decision.left.iter().map(|copy| {
        Write::new(Object::Pool(Arc::clone(&snap.pool)), Verb::DeleteCopy(Box::new(copy.clone())))
    });
    let left = Batch::of(Part::Tell, "cannot delete a copy of a template", left);
    let confirm = (!create.is_empty() || !delete.is_empty()).then(|| {
        let read = Verb::Confirm(Same::Spec);
        Batch::own("cannot read a pool", Write::new(Object::Pool(Arc::clone(&snap.pool)), read))
    });
    let of = |machine: &Arc<Machine>, verb| Write::new(Object::Machine(Arc::clone(machine)), verb);
    let patches = patches.iter().map(|(machine, patch)| of(machine, Verb::Patch(patch.clone())));
    let instances = instances.iter().map(|(machine, instance)| {
        let said = json!({ "instance": instance, "instanceProviderID": machine.instance_id() });
        of(machine, Verb::PatchStatus(json!({ "status": said })))
    });
    let gone = gone.iter().map(|machine| {
        let id = machine.instance_id().map(ProviderId::as_str).unwrap_or_default();
        let mark = json!({ "metadata": { "annotations": { INSTANCE_GONE: id } } });
        of(machine, Verb::Patch(mark))
    });
    let reading = snap.known.view.known();
    let there = reading.into_iter().flat_map(|it| &it.instances).filter(|it| !it.is_going());
    let there: Arc<BTreeSet<_>> = Arc::new(if create.is_empty() {
        BTreeSet::new()
    } else {
        there.map(|it| it.provider_id.clone()).collect()
    });
    let create = create.iter().map(|machine| make(snap, machine, &there));
    // A Machine that changed meanwhile has another version than the observed one, as happens all the time while it
    // boots.
    let answers = Answers { conflict: Then::Again(LOOK_AGAIN), ..Answers::OTHERS };
    let what = "cannot update a machine of a pool";
    let batches = [
        Batch::of(Part::Update, what, patches.chain(instances)),
        Batch::of(Part::Mark, what, gone),
        Batch::of(Part::Delete, "cannot delete a machine", delete.iter().map(remove)),
        Batch::of(Part::Create, "cannot create a machine", create),
    ];
    let batches = batches.map(|batch| {
        let conflict = if batch.part == Part::Create { Then::Repeat } else { answers.conflict };
        batch.answering(Answers { conflict, ..answers }).paced(Pace::Beside(BURST_OF_MACHINES))
    });
    token
        .into_iter()
        .chain(copy)
        .chain(confirm)
        .chain(batches)
        .chain([left])
        .filter(|batch| !batch.writes.is_empty())
        .collect()
}

/// A failed token write holds up nothing else: the group has the earlier token, or is not made yet.
fn with_token(snap: &Snapshot, token: TokenRequest) -> Batch {
    let note = "cannot make the bootstrap token".to_owned();
    let refused = Event::warning(EventReason::FailedCreate, note).doing(EventAction::Create);
    let verb = Verb::Token(Box::new(TokenWrite::Ensure(token)));
    let write = Write::new(Object::Pool(Arc::clone(&snap.pool)), verb).or_telling(refused);
    Batch::of(Part::Tell, "cannot make a bootstrap token", [write])
}

/// As with a token.
fn with_copy(snap: &Snapshot, copy: NewCopy) -> Batch {
    let note = format!("cannot make {copy}");
    let refused = Event::warning(EventReason::FailedCreate, note).doing(EventAction::Create);
    let verb = Verb::MakeCopy(Box::new(copy));
    let write = Write::new(Object::Pool(Arc::clone(&snap.pool)), verb).or_telling(refused);
    Batch::of(Part::Tell, "cannot make a copy of a template", [write])
}

/// The tokens of a pool are deleted before the pool. A cluster that cannot be reached any more does not hold it: they end by themselves.
fn without_tokens(snap: &Snapshot) -> Option<Batch> {
    let delete = |id| {
        let verb = Verb::Token(Box::new(TokenWrite::Delete { id, owner: snap.pool.uid().into() }));
        Write::new(Object::Pool(Arc::clone(&snap.pool)), verb)
    };
    let writes: Vec<_> = token::left(snap).into_iter().map(delete).collect();
    let answers = Answers { other: Then::GoOn, conflict: Then::GoOn, ..Answers::OWN };
    let answers = Answers { missing: Then::GoOn, ..answers };
    let batch = Batch::of(Part::Delete, "cannot delete a bootstrap token", writes);
    (!batch.writes.is_empty()).then(|| batch.answering(answers))
}

/// A Machine that changed since the choice may have become ready, or be another's: the pool chooses again.
fn remove(Victim { machine, cause }: &Victim) -> Write {
    let only = if cause.is_choice() { Only::Seen } else { Only::Uid };
    set::remove(machine, cause).only(only)
}

/// The name follows from the instance, so a repetition makes no second Machine.
fn make(snap: &Snapshot, machine: &Machine, there: &Arc<BTreeSet<ProviderId>>) -> Write {
    let holder = machine.provider_id().and_then(|id| snap.others.instances.get(id));
    let verb = if let Some(other) = holder {
        Verb::Refuse(format!("its instance is that of {other}"))
    } else {
        let owner = owner_reference(&snap.pool);
        Verb::Create(Taken::Instance(OfInstance { owner, there: Arc::clone(there) }))
    };
    set::create(machine.clone(), verb)
}
