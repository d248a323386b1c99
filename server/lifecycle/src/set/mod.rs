//! Every decision about a MachineSet: ownership, changes from the template, creations and deletions. Each rule has a
//! file.

mod claim;
mod count;
mod gathers;
mod invariants;
mod preserve;
mod push_down;
mod status;
mod take;
mod template;
mod told;
mod validation;
mod victims;
mod writes;

pub use claim::{Owners, owner_reference};
pub use count::{BURST, Blocker, DRIFT_MARGIN, is_active};
pub use gathers::gathers;
pub use invariants::{SetViolation, check};
pub use preserve::NodeWish;
pub use push_down::pushed;
pub(crate) use push_down::spec_patch;
pub use status::{FOREIGN, Failures, Say, UNREADABLE, is_news, status, with_condition};
pub use take::{Spare, is_ready};
pub use template::{machine, machine_name};
pub use validation::{broken, template_rules};
pub use victims::{Cause, Policy, Rank, Victim};
pub use writes::{LAG, SetReport, plan};
pub(crate) use writes::{create, new_names, remove};

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use ostler_api::{
    Machine, MachineClass, MachineSet, machine::MachinePhase, machine_set::SeenTemplate, names,
};
use serde_json::Value;

use crate::{
    class::FinalizerChange as Finalizer,
    copies::{CopiesView, Made},
    foreign::Foreign,
    replicas::Filled,
    streak::Streak,
};

/// Why the Machines of a set may not be all that are seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blind {
    /// The set's own last writes are not seen yet.
    OwnWrites,
    /// Requests of the process that led before may still arrive.
    Predecessor,
    /// A Machine of the namespace that may be the set's cannot be read, with the reason for people.
    Unreadable(String),
}

/// The input of a decision about a set.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The set.
    pub set: Arc<MachineSet>,
    /// The class of the template; `None`: the class does not exist.
    pub class: Option<Arc<MachineClass>>,
    /// Machines of the set, and Machines in the namespace without a controller.
    pub machines: Vec<Arc<Machine>>,
    /// The other sets of its namespace.
    pub others: Vec<Arc<MachineSet>>,
    /// The bootstrap template of the set; `None`: no template to follow.
    pub copies: Option<CopiesView>,
    /// The wishes on the Nodes of Failed Machines, by UID of the Machine.
    pub wishes: BTreeMap<String, NodeWish>,
    /// Names of Machines whose creation got no answer.
    pub unanswered: Vec<String>,
    /// Machines in reserve, in its namespace.
    pub spares: Vec<Spare>,
    /// Names of reserve Machines whose takeover got no answer.
    pub taking: Vec<String>,
    /// The zones of the set's Machines in deletion.
    pub zones: Vec<String>,
    /// Why there may be others; `None`: there are none.
    pub blind: Option<Blind>,
    /// Another process that runs the set.
    pub foreign: Option<Foreign>,
    /// Random: names of new Machines follow from it.
    pub seed: u64,
    /// Whether it has to be frozen, and is not yet.
    pub freeze_due: bool,
    /// Whether this process looks after the Machines themselves; else a deletion is shown in their status.
    pub runs_machines: bool,
    /// When to look again although nothing changed.
    pub again: Duration,
    /// The time.
    pub now: Timestamp,
}

/// The decision about a set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The broken rules of the spec. Then nothing is done, but that a deployment may make an old set smaller.
    pub broken: Vec<String>,
    /// Its finalizer.
    pub finalizer: Finalizer,
    /// The wanted number, if absent in the spec. Then nothing else is done.
    pub fill: Option<Filled>,
    /// Machines to adopt.
    pub adopt: Vec<Arc<Machine>>,
    /// Machines to release, since their labels no longer match.
    pub release: Vec<Arc<Machine>>,
    /// Merge patches of Machines, by place in [`Self::claimed`].
    pub patches: Vec<(Arc<Machine>, Value)>,
    /// Names whose creation is repeated, and those that have a copy of the template already.
    pub repeat: Vec<String>,
    /// Reserve Machines to take in place of new ones.
    pub take: Vec<Arc<Machine>>,
    /// How many Machines are created under new names.
    pub create: usize,
    /// Machines to delete.
    pub delete: Vec<Victim>,
    /// The current template for the copies.
    pub template: Option<SeenTemplate>,
    /// Copies of a template that go: their Machines were never made, or are gone.
    pub left: Vec<Made>,
    /// Why fewer Machines are created or deleted than wanted.
    pub blocker: Option<Blocker>,
    /// Consecutive failures of Machines, and when Failed Machines are replaced.
    pub streak: Streak,
    /// Another set whose selector overlaps with its own; told once for each generation.
    pub overlap: Option<String>,
    /// The Machines of the set, kept or adopted.
    pub claimed: Vec<Arc<Machine>>,
}

impl Decision {
    /// Whether nothing is to be done.
    pub fn is_idle(&self) -> bool {
        let Self { finalizer, fill, adopt, release, patches, repeat, take, create, .. } = self;
        *finalizer == Finalizer::Keep
            && fill.is_none()
            && adopt.is_empty()
            && release.is_empty()
            && patches.is_empty()
            && repeat.is_empty()
            && take.is_empty()
            && *create == 0
            && self.delete.is_empty()
            && self.left.is_empty()
    }
}

/// Decides about a set.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let set = &snapshot.set;
    let plan = if set.is_deleting() { end(snapshot) } else { keep_up(snapshot) };
    debug_assert_eq!(check(snapshot, &plan), Ok(()), "{}", set.name());
    plan
}

fn keep_up(snapshot: &Snapshot) -> Decision {
    let set = &snapshot.set;
    let Owners { keep, adopt, release } = claim::claim(snapshot);
    let claimed: Vec<_> = keep.into_iter().chain(adopt.iter().cloned()).collect();
    let controlled = claim::controlled(snapshot);
    let broken = broken(set, !controlled.is_empty());
    if !broken.is_empty() {
        let delete = if count::is_outdated(set, &broken) {
            count::only_fewer(snapshot, &controlled)
        } else {
            Vec::new()
        };
        return Decision { broken, delete, claimed: controlled, ..Decision::default() };
    }
    if !set.has_finalizer() {
        // The finalizer comes first: the set must outlive its Machines.
        return Decision { finalizer: Finalizer::Add, claimed, ..Decision::default() };
    }
    if set.spec.replicas.is_none() {
        return count::fill(snapshot, controlled);
    }
    let preserved = preserve::decide(set, &claimed, &snapshot.wishes);
    let patches = push_down::patches(set, &claimed, &preserved);
    let old = set.status.as_ref().and_then(|it| it.replacement_retry.as_ref());
    let failed = |machine: &Machine| machine.phase() == MachinePhase::Failed;
    let streak = Streak::of(old, claimed.iter().map(AsRef::as_ref), failed, snapshot.now);
    let count = count::decide(snapshot, &claimed, release.len(), &preserved, &streak);
    let take = take::choose(snapshot, count.create);
    // A copy whose Machine is not seen may have one.
    let sees = snapshot.blind.is_none() && snapshot.foreign.is_none();
    let left = snapshot.copies.iter().filter(|_| sees).flat_map(|copies| &copies.left);
    let is_awaited = |copy: &&Made| snapshot.unanswered.contains(&copy.name);
    let mut left: Vec<_> = left.filter(|copy| !is_awaited(copy)).cloned().collect();
    let missing = count.create - take.len();
    let usable = snapshot.copies.as_ref().map(|copies| copies.usable(set, &left, missing));
    let usable = usable.unwrap_or_default();
    left.retain(|copy| !usable.contains(&copy.name));
    left.truncate(BURST);
    let is_new =
        set.status.as_ref().and_then(|it| it.observed_generation) != set.metadata.generation;
    Decision {
        overlap: is_new.then(|| claim::overlap(snapshot)).flatten(),
        adopt,
        release,
        patches,
        create: missing - usable.len(),
        repeat: count.repeat.into_iter().chain(usable).collect(),
        take,
        delete: count.delete,
        left,
        template: snapshot.copies.as_ref().and_then(CopiesView::seen),
        blocker: count.blocker,
        streak,
        claimed,
        ..Decision::default()
    }
}

/// The set is deleted: so are its Machines, and the finalizer goes with the last Machine. A set that is deleted with
/// `--cascade=orphan` waits until the garbage collector has freed its Machines, and then has none.
fn end(snapshot: &Snapshot) -> Decision {
    let claimed = claim::controlled(snapshot);
    let finalizers = snapshot.set.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|name| name == ORPHAN) {
        return Decision { claimed, blocker: Some(Blocker::Orphaning), ..Decision::default() };
    }
    let living = claimed.iter().filter(|machine| !machine.is_deleting());
    let victim =
        |machine: &Arc<Machine>| Victim { machine: machine.clone(), cause: Cause::SetGone };
    let delete: Vec<_> = living.map(victim).take(BURST).collect();
    // The creation of an unseen Machine must not outlive the set.
    let alone = claimed.is_empty() && snapshot.unanswered.is_empty() && snapshot.blind.is_none();
    let finalizer =
        if alone && snapshot.set.has_finalizer() { Finalizer::Remove } else { Finalizer::Keep };
    let blocker = (!claimed.is_empty()).then_some(Blocker::Ending);
    Decision { finalizer, delete, blocker, claimed, ..Decision::default() }
}

/// The garbage collector's finalizer for `--cascade=orphan`.
const ORPHAN: &str = "orphan";

/// Whether the set creates nothing, because it has far too many Machines.
fn is_frozen(set: &MachineSet) -> bool {
    set.label(names::label::FREEZE) == Some("True")
}
