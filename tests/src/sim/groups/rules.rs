//! What is asked of the cores that run sets and deployments: INV-11 to INV-14, judged by what the API server has.
//!
//! A core acts on observations that may be old: a rule compares with the most favourable state within `Rules::lag`.
//! Wishes and observations older than that excuse nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::machine::{FailureReason, Machine, MachinePhase, WaitReason};
use ostler_api::machine_deployment::{OrchestrationType, StrategyType};
use ostler_api::names::{annotation, label};
use ostler_api::{MachineDeployment, MachineReserve, MachineSet};
use ostler_lifecycle::owner::is_in_reserve;
use ostler_lifecycle::selector;
use tokio::time::Instant;

use super::super::parts::CREATION_TIMEOUT;

/// Current sets and deployments, their recent wishes, and the state of their machines.
#[derive(Debug, Default)]
pub struct Rules {
    lag: Duration,
    sets: BTreeMap<String, Kept<MachineSet>>,
    deployments: BTreeMap<String, Kept<MachineDeployment>>,
    reserves: BTreeMap<String, Kept<MachineReserve>>,
    /// Sets whose machines were to stay when they were deleted, by UID: the garbage collector is part of the API server,
    /// and nobody is told what it writes.
    orphaning: BTreeSet<String>,
    /// By UID of the machine.
    members: BTreeMap<String, Member>,
}

/// How many machines there may be, and how many have to be available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wants {
    most: i32,
    least: i32,
}

#[derive(Debug)]
struct Kept<K> {
    object: K,
    /// Wishes with their beginnings.
    wants: Vec<(Instant, Wants)>,
}

impl<K> Kept<K> {
    /// The wishes within `lag`.
    fn lately(&self, lag: Duration) -> impl Iterator<Item = Wants> {
        let ends = self.wants.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        let recent = move |end: Option<Instant>| end.is_none_or(|end| end.elapsed() <= lag);
        self.wants.iter().zip(ends).filter(move |(_, end)| recent(*end)).map(|((_, it), _)| *it)
    }

    fn most(&self, lag: Duration) -> i32 {
        self.lately(lag).map(|it| it.most).max().unwrap_or_default()
    }

    fn least(&self, lag: Duration) -> i32 {
        self.lately(lag).map(|it| it.least).min().unwrap_or_default()
    }

    /// When it was lowered, if that was the last change.
    fn lowered(&self) -> Option<Instant> {
        let mut newest = self.wants.iter().rev();
        let ((at, now), (_, before)) = (newest.next()?, newest.next()?);
        (now.most < before.most).then_some(*at)
    }
}

/// A machine of a set.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Member {
    /// UID of the set.
    set: String,
    /// A core deleted it.
    taken: bool,
    /// Since when it is being made, replaced or deleted.
    busy: Option<Instant>,
    active: Lately,
    available: Lately,
    failed: Lately,
    /// Its Node was chosen for an update in place.
    selected: Lately,
    /// The label of a Node that is chosen, which a user may set before there is anything to choose it for.
    marked: Lately,
    /// It was updated in place and came from another set, which may want one more yet.
    moved: bool,
    /// A set found it without a controller, and may have enough without it.
    adopted: bool,
    /// It was made when its set was already being deleted: no `--cascade=orphan` is about it.
    late: bool,
}

/// Whether something is so, since when, and until when it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lately {
    pub(in crate::sim) now: bool,
    since: Option<Instant>,
    until: Option<Instant>,
}

impl Lately {
    /// It is so, or not, from now on.
    pub fn is(&mut self, now: bool) {
        if self.now && !now {
            self.until = Some(Instant::now());
        }
        if now && !self.now {
            self.since = Some(Instant::now());
        }
        self.now = now;
    }

    /// When it became so last.
    pub fn since(self) -> Option<Instant> {
        self.since
    }

    /// Whether the fact holds, or held within `lag`.
    pub fn was(self, lag: Duration) -> bool {
        self.now || self.until.is_some_and(|until| until.elapsed() <= lag)
    }
}

/// The controller of an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    controllers(meta).next()
}

fn controllers(meta: &ObjectMeta) -> impl Iterator<Item = &OwnerReference> {
    meta.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true))
}

fn number(value: Option<&IntOrString>) -> i32 {
    match value {
        Some(IntOrString::Int(number)) => *number,
        // The users of the simulation write numbers.
        Some(IntOrString::String(_)) | None => 0,
    }
}

fn wants(deployment: &MachineDeployment) -> Wants {
    if deployment.is_deleting() {
        return Wants::default();
    }
    let (replicas, strategy) = (deployment.spec.replicas(), &deployment.spec.strategy);
    let (surge, missing) =
        match (&strategy.type_, &strategy.rolling_update, &strategy.in_place_update) {
            (Some(StrategyType::RollingUpdate), Some(block), _) => {
                (&block.max_surge, &block.max_unavailable)
            }
            (Some(StrategyType::InPlaceUpdate), _, Some(block)) => {
                (&block.max_surge, &block.max_unavailable)
            }
            _ => return Wants { most: replicas, least: 0 },
        };
    let in_place = strategy.in_place_update.as_ref();
    let manual = in_place.and_then(|block| block.orchestration_type.as_ref())
        == Some(&OrchestrationType::Manual);
    // Where a user chooses, nothing is created for it.
    let surge = if manual { 0 } else { number(surge.as_ref()) };
    let missing = number(missing.as_ref()).max(i32::from(surge == 0));
    Wants { most: replicas + surge, least: (replicas - missing).max(0) }
}

/// Deleted with `--cascade=orphan`: dependents stay.
fn is_orphaning(meta: &ObjectMeta) -> bool {
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    meta.deletion_timestamp.is_some() && finalizers.iter().any(|name| name == "orphan")
}

fn is_active(machine: &Machine) -> bool {
    !machine.is_deleting() && machine.phase() != MachinePhase::Terminating
}

/// It is on its way to be a Node, or to be gone. A machine that waits for capacity is not busy.
fn is_busy(machine: &Machine) -> bool {
    use MachinePhase::{CrashLoopBackOff, Failed, New, Pending, Terminating};
    let status = machine.status.as_ref();
    let waits = status.and_then(|status| status.waiting_for.as_ref()).map(|it| &it.reason);
    let retries = status.and_then(|status| status.retry.as_ref()).map(|it| &it.reason);
    let lacks = [waits, retries].contains(&Some(&WaitReason::CapacityExhausted));
    let phase = machine.phase();
    let begins = [New, Pending, CrashLoopBackOff].contains(&phase) && !lacks;
    machine.is_deleting() || begins || [Failed, Terminating].contains(&phase)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl Rules {
    /// Without any knowledge.
    pub fn new(lag: Duration) -> Self {
        Self { lag, ..Self::default() }
    }

    /// A deployment was written, or is gone.
    pub fn deployment(&mut self, deployment: MachineDeployment, gone: bool) {
        let now = if gone { Wants::default() } else { wants(&deployment) };
        keep(&mut self.deployments, deployment.uid().to_owned(), deployment, now);
    }

    /// A reserve was written, or is gone.
    pub fn reserve(&mut self, reserve: MachineReserve, gone: bool) {
        let asked = if gone { 0 } else { number(reserve.spec.replicas.as_ref()) };
        let wants = Wants { most: asked, least: 0 };
        keep(&mut self.reserves, reserve.uid().to_owned(), reserve, wants);
    }

    /// A set was written, or is gone. Returns the violation, if a core wrote the set.
    pub fn set(&mut self, set: MachineSet, gone: bool, ours: bool) -> Option<String> {
        let owner = controller(&set.metadata).map(|owner| owner.uid.clone());
        let (uid, name) = (set.uid().to_owned(), set.name().to_owned());
        let orphaning = is_orphaning(&set.metadata);
        if orphaning {
            self.orphaning.insert(uid.clone());
        }
        let ends = gone || set.is_deleting() && !orphaning;
        let replicas = if ends { 0 } else { set.spec.replicas() };
        let before =
            owner.as_deref().map(|owner| self.wanted_by_sets(owner) + self.brings(&uid, owner));
        let two = controllers(&set.metadata).count() > 1;
        keep(&mut self.sets, uid.clone(), set, Wants { most: replicas, least: replicas });
        if two {
            return Some(format!("INV-13: set {name} has two controllers"));
        }
        let (owner, before) = (owner?, before?);
        // Machines that were handed over exist already; the old set may still count a lost machine.
        let moved = self.members.values().filter(|it| it.moved && it.active.now && it.set == uid);
        let after = self.wanted_by_sets(&owner) - count(moved.count());
        let most = self.deployments.get(&owner)?.most(self.lag);
        (ours && after > before && after > most).then(|| {
            format!(
                "INV-11: the sets of a deployment want {after} with {name}, and {most} are the most"
            )
        })
    }

    /// A set or a deployment of this name was deleted, and is gone.
    pub fn gone(&mut self, plural: &str, name: &str) {
        let of_name = |meta: &ObjectMeta| meta.name.as_deref() == Some(name);
        if plural == "machinesets" {
            let sets = self.sets.values().filter(|it| of_name(&it.object.metadata));
            let all: Vec<_> = sets.map(|it| it.object.clone()).collect();
            for set in all {
                self.set(set, true, false);
            }
        } else {
            let deployments = self.deployments.values().filter(|it| of_name(&it.object.metadata));
            let all: Vec<_> = deployments.map(|it| it.object.clone()).collect();
            for deployment in all {
                self.deployment(deployment, true);
            }
        }
    }

    /// The replicas that an adopted set brings to a deployment.
    fn brings(&self, set: &str, deployment: &str) -> i32 {
        let Some(kept) = self.sets.get(set) else { return 0 };
        let owner = controller(&kept.object.metadata);
        let wanted = kept.wants.last().map_or(0, |(_, wants)| wants.most);
        if owner.is_some_and(|owner| owner.uid == deployment) { 0 } else { wanted }
    }

    fn wanted_by_sets(&self, deployment: &str) -> i32 {
        self.sets_of(deployment)
            .filter_map(|set| set.wants.last())
            .map(|(_, wants)| wants.most)
            .sum()
    }

    fn sets_of(&self, deployment: &str) -> impl Iterator<Item = &Kept<MachineSet>> {
        let of_it = move |set: &&Kept<MachineSet>| {
            controller(&set.object.metadata).is_some_and(|owner| owner.uid == deployment)
        };
        self.sets.values().filter(of_it)
    }

    /// A machine was written. Returns the violations, if a core wrote the machine.
    pub fn machine(
        &mut self,
        before: Option<&Machine>,
        machine: &Machine,
        method: &str,
        ours: bool,
    ) -> Vec<String> {
        let goes = method == "DELETE" && before.is_some_and(is_active);
        let mut wrong: Vec<_> = self.two_controllers(before, machine, ours).into_iter().collect();
        if ours && goes {
            wrong.extend(self.deleted(machine));
        }
        wrong.extend(before.filter(|_| ours).and_then(|it| self.given_up(it, machine)));
        self.look(machine, ours && goes);
        let taken = before.is_some_and(|it| is_in_reserve(&it.metadata))
            && !is_in_reserve(&machine.metadata);
        let free = before.is_some_and(|before| controller(&before.metadata).is_none());
        if let Some(member) = self.members.get_mut(machine.uid()).filter(|_| free) {
            member.adopted = true;
        }
        if ours && taken {
            wrong.extend(self.created(machine));
        }
        if ours && method == "POST" && before.is_none() {
            let set = controller(&machine.metadata).and_then(|owner| self.sets.get(&owner.uid));
            let late = set.is_some_and(|set| set.object.is_deleting());
            if let Some(member) = self.members.get_mut(machine.uid()) {
                member.late = late;
            }
            wrong.extend(self.created(machine));
        }
        wrong
    }

    /// A machine is gone for good.
    pub fn machine_gone(&mut self, uid: &str) {
        if let Some(member) = self.members.get_mut(uid) {
            member.busy = None;
            member.active.is(false);
            member.available.is(false);
            member.failed.is(false);
        }
    }

    fn look(&mut self, machine: &Machine, taken: bool) {
        let uid = machine.uid();
        if let Some(owner) = controller(&machine.metadata) {
            let member = self.members.entry(uid.to_owned()).or_default();
            member.set.clone_from(&owner.uid);
        } else {
            // Released: counts of the old set may be stale.
            self.machine_gone(uid);
            return;
        }
        let Some(member) = self.members.get_mut(uid) else { return };
        let (active, phase) = (is_active(machine), machine.phase());
        member.taken |= taken;
        member.moved = machine.label(label::UPDATE_RESULT).is_some();
        member.active.is(active);
        let runs = [MachinePhase::Running, MachinePhase::Available].contains(&phase);
        member.available.is(active && runs);
        member.failed.is(active && phase == MachinePhase::Failed);
        if is_busy(machine) {
            member.busy.get_or_insert_with(Instant::now);
        } else {
            member.busy = None;
        }
    }

    /// CHECK-4: of a deployment one Machine is given up for its Node at a time, for as long as it and its successor may
    /// take; one that waited for so long goes all the same.
    fn given_up(&self, before: &Machine, machine: &Machine) -> Option<String> {
        let reason = machine.status.as_ref().and_then(|status| status.failure_reason.as_ref());
        let for_health =
            matches!(reason, Some(FailureReason::HealthCheck | FailureReason::HealthTimeout));
        let unknown = before.phase() == MachinePhase::Unknown;
        if !unknown || machine.phase() != MachinePhase::Failed || !for_health {
            return None;
        }
        // The time that is due by a health timeout is later.
        let due = before.unhealthy_mark()?.since.0;
        let changed =
            machine.status.as_ref()?.current_status.as_ref()?.last_update_time.as_ref()?.0;
        let waited = Duration::try_from(changed.duration_since(due)).unwrap_or_default();
        let set = self.sets.get(&controller(&before.metadata)?.uid)?;
        let of = controller(&set.object.metadata)?.uid.clone();
        let sets: Vec<_> = self.sets_of(&of).map(|it| it.object.uid()).collect();
        let (lag, patience) = (self.lag, CREATION_TIMEOUT.saturating_sub(self.lag));
        let on_its_way = |it: &&Member| {
            let long = it.busy.is_some_and(|at| (lag..patience).contains(&at.elapsed()));
            sets.contains(&it.set.as_str()) && long
        };
        let others = self.members.values().filter(on_its_way).count();
        (others > 0 && waited + lag < CREATION_TIMEOUT).then(|| {
            format!("CHECK-4: {} fails, and {others} others are on their way", machine.name())
        })
    }

    /// INV-13: a Machine has one controller; a core takes over only what is free and matches.
    fn two_controllers(
        &self,
        before: Option<&Machine>,
        machine: &Machine,
        ours: bool,
    ) -> Option<String> {
        let name = machine.name();
        if controllers(&machine.metadata).count() > 1 {
            return Some(format!("INV-13: {name} has two controllers"));
        }
        let before = before.filter(|_| ours)?;
        let now = controller(&machine.metadata)?;
        match controller(&before.metadata) {
            // A Machine in reserve goes to a set that selects the new labels.
            Some(one) if one.uid != now.uid && is_in_reserve(&before.metadata) => {
                self.looks_for(now, machine)
            }
            // A Machine that was updated in place goes to the new set of the same deployment.
            Some(one) if one.uid != now.uid && self.hands_over(&one.uid, &now.uid) => None,
            Some(one) if one.uid != now.uid && !self.orphaning.contains(&one.uid) => {
                Some(format!("INV-13: {name} was of {} and is of {}", one.name, now.name))
            }
            Some(one) if one.uid == now.uid => None,
            Some(_) | None => self.looks_for(now, machine),
        }
    }

    /// The violation if `set` became the controller of the machine.
    fn looks_for(&self, set: &OwnerReference, machine: &Machine) -> Option<String> {
        let (name, found) = (machine.name(), self.sets.get(&set.uid).map(|set| &set.object));
        let matches = |set: &MachineSet| {
            let selector = set.spec.selector.as_ref();
            selector.is_some_and(|it| selector::matches(it, machine.metadata.labels.as_ref()))
        };
        let wants = found.is_some_and(matches);
        (!wants).then(|| format!("INV-13: {name} is not what {} looks for", set.name))
    }

    /// Whether machines may go from one set to another one: in an update in place.
    fn hands_over(&self, from: &str, to: &str) -> bool {
        let owner = |set: &str| controller(&self.sets.get(set)?.object.metadata);
        let (Some(one), Some(other)) = (owner(from), owner(to)) else { return false };
        let deployment = self.deployments.get(&one.uid).map(|kept| &kept.object);
        let in_place = Some(StrategyType::InPlaceUpdate);
        one.uid == other.uid && deployment.is_some_and(|it| it.spec.strategy.type_ == in_place)
    }

    /// A Node says something else. Returns the violation, if a core wrote the Node. INV-12: a core chooses no machine
    /// for an update in place if too few are left.
    pub fn node(&mut self, machine: &Machine, node: &Node, ours: bool) -> Option<String> {
        let labels = node.metadata.labels.as_ref();
        let done = |all: &BTreeMap<String, String>| {
            all.get(label::UPDATE_RESULT).is_some_and(|result| result == "successful")
        };
        let has = |key: &str| labels.is_some_and(|all| all.contains_key(key) && !done(all));
        let marked = has(label::SELECTED_FOR_UPDATE);
        let selected = marked && has(label::CANDIDATE_FOR_UPDATE);
        let member = self.members.get_mut(machine.uid())?;
        let by_user = member.marked.now;
        member.marked.is(marked);
        let news = selected && !member.selected.now && !by_user;
        member.selected.is(selected);
        // A machine that became available just now may have been chosen before. The choice takes nothing from the others: a
        // moment later, the same state would be fine.
        let seen = member.available.since().is_some_and(|at| at.elapsed() > self.lag);
        let (set, available) = (member.set.clone(), member.available.now && seen);
        if !news || !ours || !available {
            return None;
        }
        let of = controller(&self.sets.get(&set)?.object.metadata)?.uid.clone();
        let least = self.deployments.get(&of)?.least(self.lag);
        let left = self.available_of(&of, |it| !it.selected.now);
        (left < least).then(|| {
            let name = machine.name();
            format!("INV-12: {name} is chosen, and {left} are left, of which {least} have to be available")
        })
    }

    /// How many machines of a deployment are available, or were lately, without those that a core deleted.
    fn available_of(&self, deployment: &str, counts: impl Fn(&Member) -> bool) -> i32 {
        let sets: Vec<_> = self.sets_of(deployment).map(|it| it.object.uid()).collect();
        let left = |it: &&Member| {
            sets.contains(&it.set.as_str()) && !it.taken && it.available.was(self.lag) && counts(it)
        };
        count(self.members.values().filter(left).count())
    }

    /// INV-11: a set has no more machines than were wanted.
    fn created(&self, machine: &Machine) -> Option<String> {
        let name = machine.name();
        let Some(owner) = controller(&machine.metadata) else {
            return Some(format!("INV-13: {name} is nobody's"));
        };
        let of_set = self.sets.get(&owner.uid).map(|it| it.most(self.lag));
        let of_reserve = || self.reserves.get(&owner.uid).map(|it| it.most(self.lag));
        let most = of_set.or_else(of_reserve)?;
        let counts = |it: &&Member| it.set == owner.uid && it.active.now && !it.moved;
        let all = self.members.values().filter(counts).count();
        (count(all) > most).then(|| {
            format!(
                "INV-11: {} has {all} machines with {name}, and wanted {most} at most",
                owner.name
            )
        })
    }

    /// INV-14: one goes because it is chosen, Failed, or too much. INV-12: and not if too few are left.
    fn deleted(&self, machine: &Machine) -> Option<String> {
        let owner = controller(&machine.metadata)?;
        let (set, member) = (self.sets.get(&owner.uid)?, self.members.get(machine.uid())?);
        let is_last = |(_, wants): &(Instant, Wants)| wants.most == 0 && set.object.is_deleting();
        let chosen = machine.annotation(annotation::PRIORITY) == Some("1");
        if chosen
            || member.late
            || member.failed.was(self.lag)
            || set.wants.last().is_some_and(is_last)
        {
            return None;
        }
        let name = machine.name();
        let there = |it: &&Member| it.set == owner.uid && !it.taken && it.active.was(self.lag);
        let all = count(self.members.values().filter(there).count());
        let least = set.least(self.lag);
        if all <= least {
            return Some(format!("INV-14: {name} goes, one of {all}, and {least} are wanted"));
        }
        if !member.available.now || member.adopted {
            return None;
        }
        let deployment = controller(&set.object.metadata)?;
        // A set carries out late what was right when its number was written, which may have changed a moment ago.
        let known = set.wants.iter().rev().find(|(at, _)| at.elapsed() > self.lag);
        let decided =
            known.or_else(|| set.wants.first()).map(|(at, _)| at.elapsed()).unwrap_or_default();
        let least = self.deployments.get(&deployment.uid)?.least(decided.max(self.lag));
        let left = self.available_of(&deployment.uid, |_| true) - 1;
        // What became available after the number was written was lowered for: no fewer are left than there were.
        let then = set.lowered().map_or(least, |at| {
            let was = |it: &Member| it.available.since.is_some_and(|since| since < at);
            self.available_of(&deployment.uid, was)
        });
        (left < least.min(then)).then(|| {
            format!(
                "INV-12: {name} goes, and {left} are left, of which {least} have to be available"
            )
        })
    }
}

fn keep<K>(all: &mut BTreeMap<String, Kept<K>>, uid: String, object: K, now: Wants) {
    match all.get_mut(&uid) {
        Some(kept) => {
            if kept.wants.last().is_none_or(|(_, last)| *last != now) {
                kept.wants.push((Instant::now(), now));
            }
            kept.object = object;
        }
        None => {
            all.insert(uid, Kept { object, wants: vec![(Instant::now(), now)] });
        }
    }
}
