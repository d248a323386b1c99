//! Every decision about a MachinePool. The core decides which instance goes and when; the group of the infrastructure,
//! how many there are. An instance is an ordinary Machine. Each rule has a file.

mod ask;
mod basis;
mod bootstrap;
mod bring;
mod budget;
mod candidate;
mod config;
mod ending;
mod group;
mod in_place;
mod intent;
mod known;
mod lost_group;
mod matching;
mod name;
mod operation;
mod replicas;
mod status;
mod template;
mod token;
mod valid;
mod victims;
mod way;
mod writes;

pub use ask::Ask;
pub use bootstrap::{DataSecret, data_secret, hash as user_data_hash, secret_name};
pub use bring::Bring;
pub use budget::{Budget, of as budget};
pub use config::{ConfigsView, Noted, config_kinds, config_secrets, config_template, noted};
pub use ending::{has_drained, is_marked_gone};
pub use group::{GroupView, Instance, Reading, is_absent};
pub use in_place::{is_begun, is_emptied};
pub use known::{Done, Known, Read, SEEN_TWICE, expected, look, read};
pub use name::{label_value, machine_name, selector, target_of};
pub use operation::BURST;
pub use template::{machine, model_hash, of_template, owner_reference, patches};
pub use token::{SLOTS, Slot, TokenView, needs_tokens, token_ids};
pub use valid::broken;
pub use victims::{Candidate, Cause, choose};
pub use way::{Situation, Way, way};
pub use writes::{BUSY, CALM, PoolReport, plan};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::{
    Machine, MachinePool, OperationId, ProviderId, ProviderName, SpecDigest,
    driver::OperationKind,
    machine::{InstanceStatus, MachinePhase, Retry},
    machine_pool::{MachinePoolStatus, PoolUpdateFailurePolicy},
    names::annotation,
};
use serde_json::{Value, json};

use self::{
    ask::Wanted,
    basis::Basis,
    matching::{Matched, Member, compare},
    operation::Progress,
};
use crate::{
    bootstrap::RefFault,
    class::FinalizerChange,
    cluster::ClusterIds,
    copies::{Made, NewCopy},
    driver::DriverView,
    operation::{Dispatch, OperationView, SecretText, UserData},
    plan::{Event, TokenRequest},
    settings::Settings,
    snapshot::{ClassFacts, ClassView, DriverFacts, SecretView},
    streak::Streak,
};

/// Most creations, and most deletions, of Machines in a pass.
const BURST_OF_MACHINES: usize = 100;

/// The input of a decision about a pool.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The pool.
    pub pool: Arc<MachinePool>,
    /// Machines of the pool.
    pub machines: Vec<Arc<Machine>>,
    /// UIDs of Machines that were deleted just now, which the cache may not show yet.
    pub deleted: BTreeSet<String>,
    /// Ids of instances that were given a Machine just now, which the cache may not show yet.
    pub created: BTreeSet<ProviderId>,
    /// Whether the API server refused the last Machine that was created for an instance.
    pub refused_machines: bool,
    /// Its class.
    pub class: ClassView,
    /// The secrets of its class, merged.
    pub secret: SecretView,
    /// The template of a bootstrap provider that it names, and its copies.
    pub configs: ConfigsView,
    /// The Secret with its user data.
    pub data: DataSecret,
    /// Its bootstrap tokens.
    pub tokens: TokenView,
    /// The secret half of a new one.
    pub token_secret: SecretText,
    /// The operator's settings.
    pub settings: Settings,
    /// The driver that serves the provider of the class.
    pub driver: DriverView,
    /// The provider that has the group, see [`holder`], if its driver is not the class's.
    pub elsewhere: Option<ProviderName>,
    /// The ids in the tags of this cluster's groups.
    pub cluster: ClusterIds,
    /// Its group.
    pub known: Known,
    /// Claims of Machines outside the pool.
    pub others: Others,
    /// Its operation.
    pub operation: OperationView,
    /// A UUID, for an operation.
    pub operation_id: OperationId,
    /// Leadership term of this core.
    pub term: i64,
    /// The time.
    pub now: Timestamp,
}

/// Claims of Machines outside the pool on instances without a Machine.
#[derive(Debug, Clone, Default)]
pub struct Others {
    /// The Machine that has an instance.
    pub instances: BTreeMap<ProviderId, String>,
    /// Nodes of others: a driver's answer on one instance never drains the Node of another.
    pub nodes: BTreeSet<String>,
}

/// A Machine to delete.
#[derive(Debug, Clone, PartialEq)]
pub struct Victim {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// Why the Machine is deleted.
    pub cause: Cause,
}

/// The decision about a pool; `writes.rs` has the order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Its finalizer. If it changes, nothing else is done.
    pub finalizer: FinalizerChange,
    /// The copy of a template to make.
    pub copy: Option<NewCopy>,
    /// Copies that go.
    pub left: Vec<Made>,
    /// The bootstrap token to make. Before it is there, nothing is made with it.
    pub token: Option<TokenRequest>,
    /// The wanted replicas in the spec.
    pub replicas: Option<i32>,
    /// The event for the user whose replicas are replaced.
    pub reset: Option<Event>,
    /// Machines of instances that have none.
    pub create: Vec<Machine>,
    /// Merge patches of Machines.
    pub patches: Vec<(Arc<Machine>, Value)>,
    /// Instance statuses to write to Machines.
    pub instances: Vec<(Arc<Machine>, InstanceStatus)>,
    /// Machines to mark as without an instance; living ones are deleted afterwards.
    pub gone: Vec<Arc<Machine>>,
    /// Machines to delete.
    pub delete: Vec<Victim>,
    /// The status.
    pub status: MachinePoolStatus,
    /// Events about changes of the status.
    pub news: Vec<Event>,
    /// A finished operation whose result is in the status.
    pub acknowledge: Option<OperationId>,
    /// The operation to send. Its intent is in the status.
    pub dispatch: Option<Dispatch>,
    /// The group has to be read before the next decision.
    pub reread: bool,
    /// There are more patches and news of instances than one pass writes.
    pub more: bool,
    /// Whether something is not as it is to be, so that the group is read often.
    pub unsettled: bool,
    /// When a verb is tried again.
    pub retry_at: Option<Timestamp>,
}

/// Everything that parts of a decision share.
struct Facts<'a> {
    snap: &'a Snapshot,
    class: Option<&'a ClassFacts>,
    driver: Option<&'a DriverFacts>,
    /// The driver's view of the group.
    group: &'a GroupView,
    /// The last operation that the driver reported as done.
    done: Option<&'a Done>,
    budget: Budget,
    /// The model that instances are to have; empty: not known.
    model: SpecDigest,
    /// The current basis of requests.
    basis: Basis,
    standing: Progress,
    /// Consecutive failures of Machines.
    streak: Streak,
    /// Consecutive losses of the group.
    group_retry: Option<Retry>,
    /// The read that decisions are made from.
    reading: Option<&'a Reading>,
    /// Machines matched with the read.
    matched: Matched<'a>,
    broken: Vec<String>,
    data: Result<Option<UserData>, RefFault>,
    /// Digest of the user data, if those are known.
    user_data: Option<SpecDigest>,
}

/// Decides about a pool.
pub fn decide(snap: &Snapshot) -> Decision {
    let pool = &snap.pool;
    if !pool.is_deleting() && !pool.has_finalizer() {
        // The finalizer comes first: the pool must outlive its group.
        return Decision { finalizer: FinalizerChange::Add, ..Decision::default() };
    }
    let known = match &snap.operation {
        OperationView::Finished(it) => snap.known.after(it, (pool, &snap.machines), snap.now),
        OperationView::Idle | OperationView::Expected(_) | OperationView::InFlight(_) => {
            snap.known.clone()
        }
    };
    let mut facts = Facts::of(snap, &known);
    let mut plan = Decision {
        acknowledge: facts.standing.acknowledge.clone(),
        reread: facts.standing.reread,
        gone: gone(&facts),
        patches: patches(pool, &snap.machines),
        ..Decision::default()
    };
    plan.patches.extend(template::of_the_model(&facts));
    plan.patches.extend(evacuated(&facts));
    plan.instances = template::instance_news(&facts);
    let over = ending::is_over(&facts);
    let configs = config::upkeep(&facts, over);
    plan.token = token::due(snap);
    plan.replicas = replicas::wanted(pool, facts.reading);
    plan.reset = plan.replicas.and_then(|replicas| replicas::reset(pool, replicas));
    plan.delete = victims(&facts, &plan.gone);
    plan.patches.splice(0..0, in_place::marks(&facts, &plan.delete));
    one_write_each(&mut plan);
    // Also for a pool that is deleted: what its group makes meanwhile may have a Node, and is drained.
    let new = facts.unmade().take(facts.room().min(BURST_OF_MACHINES));
    plan.create = new.map(|instance| template::new_machine(snap, instance)).collect();
    if !over {
        send(&mut plan, &mut facts);
    }
    plan.copy.clone_from(&configs.make);
    plan.left.clone_from(&configs.left);
    one_write_each(&mut plan);
    if over && configs.noted.is_empty() {
        plan.finalizer = FinalizerChange::Remove;
    }
    plan.more |= facts.streak.is_new();
    plan.retry_at = plan.retry_at.into_iter().chain(facts.streak.until()).min();
    status::fill(&mut plan, &facts, configs, over);
    plan
}

impl<'a> Facts<'a> {
    fn of(snap: &'a Snapshot, known: &'a Known) -> Self {
        let pool = &snap.pool;
        let class = match &snap.class {
            ClassView::Known(class) => Some(class),
            ClassView::LastKnown(class) if pool.is_deleting() => Some(class),
            ClassView::Unknown
            | ClassView::Missing
            | ClassView::NamespaceDenied
            | ClassView::NotHeld(_)
            | ClassView::LastKnown(_) => None,
        };
        // A driver without the group is not asked, and its answers do not count.
        let (driver, group) = match &snap.driver {
            _ if snap.elsewhere.is_some() => (None, &GroupView::Unknown),
            DriverView::Ready(driver) => (Some(driver), &known.view),
            DriverView::Unavailable | DriverView::NotReady(_) => (None, &known.view),
        };
        let old = pool.status.clone().unwrap_or_default();
        let chooses = driver.is_none_or(|driver| {
            !driver.pool_surge && driver.has(OperationKind::DeletePoolMachines)
        });
        let limits = budget(pool).unwrap_or_default();
        let model = class.map(|class| model_hash(pool, class)).or_else(|| old.model_hash.clone());
        let model = model.unwrap_or_default();
        let data = bootstrap::template(pool, &snap.secret, (&snap.configs, &snap.data))
            .and_then(|data| token::fill(snap, data));
        let user_data = data.as_ref().ok().map(|data| bootstrap::hash(pool, data.as_ref()));
        let basis = Basis::of(snap, class, user_data.as_ref(), &model);
        let mut standing = operation::settle(&old, &snap.operation, driver, &basis, snap.now);
        // An update of an instance missing in the read proves the read incomplete.
        standing.reread |= standing.updated.as_ref().is_some_and(|id| !group.names(id));
        let reading = group.known().filter(|_| !standing.reread);
        if reading.is_some() {
            standing.intent.take_if(|it| it.intent.outcome_unknown);
            standing.unconfirmed_since = None;
        }
        learn(&mut standing, (snap, group), &model, driver);
        let broken = broken(pool);
        let matched = compare(&snap.machines, reading);
        Self {
            snap,
            class,
            driver,
            group,
            done: known.done.as_ref(),
            // A group that replaces outdated instances by itself needs no surge and no choice of the core, and a group
            // whose instances cannot be chosen would keep the surge for ever.
            budget: Budget { rolls: limits.rolls && chooses && broken.is_empty(), ..limits },
            model,
            basis,
            standing,
            reading,
            streak: candidate::streak(snap, &matched),
            group_retry: lost_group::known(&old, reading, snap.now),
            matched,
            broken,
            user_data,
            data,
        }
    }

    /// How often in a row the driver said that there is no group. An operation that ended since may have made the
    /// group.
    const fn absent(&self) -> Option<u32> {
        match *self.group {
            GroupView::Absent(looks) if !self.standing.reread => Some(looks),
            GroupView::Absent(_)
            | GroupView::Unknown
            | GroupView::Unreadable(_)
            | GroupView::Known(_) => None,
        }
    }

    /// Whether the group is gone.
    fn is_group_gone(&self) -> bool {
        self.standing.deleted || self.absent().is_some_and(|looks| looks >= SEEN_TWICE)
    }

    fn deletes_one_by_one(&self) -> bool {
        self.driver.is_some_and(|driver| driver.has(OperationKind::DeletePoolMachines))
    }

    fn is_deleting(&self, machine: &Machine) -> bool {
        machine.is_deleting() || self.snap.deleted.contains(machine.uid())
    }

    /// An instance that the infrastructure deletes by itself, or that is missing in the read, is on its way out, too:
    /// the group has made a replacement, which must not pass for surplus.
    fn is_leaving(&self, member: Member<'_>) -> bool {
        let there = || member.instance.is_some_and(|it| !it.is_going());
        self.is_deleting(member.machine) || self.reading.is_some() && !there()
    }

    /// The infrastructure deletes the instance, like a spot instance: its pods have the remaining time. A driver's
    /// replacement of the instance in place, for us, does not count.
    fn is_taken_away(&self, Member { machine, instance }: Member<'_>) -> bool {
        let Some(instance) = instance.filter(|it| it.is_going()) else { return false };
        let intent = self.standing.intent.iter().flat_map(|intent| &intent.provider_ids);
        let mut ours = intent.chain(&self.standing.hot.unfinished);
        !is_marked_gone(machine) && !ours.any(|id| *id == instance.provider_id)
    }

    /// Whether instances are replaced because of their model: the group has to make the current model first.
    fn budget(&self) -> Budget {
        let current = self.reading.is_some_and(|it| it.model_hash == self.model);
        Budget { rolls: self.budget.rolls && current, ..self.budget }
    }

    /// Whether it gets the current model by being replaced.
    fn is_outdated(&self, member: Member<'_>) -> bool {
        self.way(member) == Way::Replace
    }

    /// How it gets the current model.
    fn way(&self, Member { machine, instance }: Member<'_>) -> Way {
        let none = SpecDigest::default();
        let said = machine.status.as_ref().and_then(|status| status.instance.as_ref());
        let has = match (instance, said) {
            (Some(instance), _) => &instance.model_hash,
            (None, Some(said)) => said.model_hash.as_ref().unwrap_or(&none),
            (None, None) => return Way::Current,
        };
        let can = |driver: &DriverFacts| driver.has(OperationKind::UpdatePoolMachine);
        let limits = self.snap.pool.spec.strategy.in_place_update.as_ref();
        let replaces = limits.and_then(|it| it.on_update_failure.as_ref())
            == Some(&PoolUpdateFailurePolicy::Replace);
        let can_update = self.driver.is_some_and(|driver| can(driver) && !driver.pool_surge);
        let failed = machine.phase() == MachinePhase::InPlaceUpdateFailed;
        let hot = &self.standing.hot;
        way(&Situation {
            has,
            wanted: &self.model,
            unfinished: machine.instance_id().is_some_and(|id| hot.unfinished.contains(id)),
            can_update,
            refused: way::is_refused(hot, has),
            asked: in_place::is_asked_for(machine) || is_begun(machine),
            in_place: budget::updates_in_place(&self.snap.pool),
            given_up: replaces && (failed || !can_update),
        })
    }
}

/// The driver's answers about running instances, for the current model and driver.
fn learn(
    standing: &mut Progress,
    (snap, group): (&Snapshot, &GroupView),
    model: &SpecDigest,
    driver: Option<&DriverFacts>,
) {
    let driver = driver.map(|driver| driver.identity.as_str());
    way::forget_refusals(&mut standing.hot, model, driver);
    if let Some(reading) = group.known().filter(|it| !it.is_doubtful()) {
        // Of models that no instance has, nothing is asked.
        let has = |from: &SpecDigest| reading.instances.iter().any(|it| it.model_hash == *from);
        standing.hot.refused.retain(has);
    }
    if !standing.hot.unfinished.is_empty() {
        // Of instances that are gone, nothing is to be finished.
        let there: BTreeSet<_> = snap.machines.iter().filter_map(|it| it.instance_id()).collect();
        standing.hot.unfinished.retain(|id| there.contains(id));
    }
    let Some((id, why)) = &standing.refusal else { return };
    let told = group.known().and_then(|it| it.instances.iter().find(|it| it.provider_id == *id));
    let machine = snap.machines.iter().find(|it| it.instance_id() == Some(id));
    let said = machine.and_then(|it| it.status.as_ref()?.instance.as_ref()?.model_hash.as_ref());
    if let Some(from) = told.map(|it| &it.model_hash).or(said) {
        way::refuse(&mut standing.hot, (from.clone(), model), driver, why);
    }
}

/// Machines of a pool that is deleted, whose driver cannot delete one instance: they are to be drained all the same, since
/// the group goes as a whole.
fn evacuated(facts: &Facts<'_>) -> Vec<(Arc<Machine>, Value)> {
    let snap = facts.snap;
    if !snap.pool.is_deleting() || facts.driver.is_none() || facts.deletes_one_by_one() {
        return Vec::new();
    }
    let unmarked =
        snap.machines.iter().filter(|it| it.annotation(annotation::POOL_DELETED).is_none());
    let mark = |machine: &Arc<Machine>| {
        let marks = json!({ "metadata": { "annotations": { annotation::POOL_DELETED: "" } } });
        (machine.clone(), marks)
    };
    unmarked.map(mark).collect()
}

/// Each write is on condition of the version that was seen: one for each Machine and pass, the most important one.
fn one_write_each(plan: &mut Decision) {
    let chosen = plan.delete.iter().filter(|victim| victim.cause.is_choice());
    let chosen = chosen.map(|victim| &victim.machine);
    let mut taken: BTreeSet<String> =
        plan.gone.iter().chain(chosen).map(|it| it.uid().to_owned()).collect();
    plan.patches.retain(|(machine, _)| taken.insert(machine.uid().to_owned()));
    plan.instances.retain(|(machine, _)| taken.insert(machine.uid().to_owned()));
    // A Machine loses its update marks once its status shows the model.
    plan.more |= plan.instances.iter().any(|(machine, _)| is_begun(machine));
    plan.more |= plan.patches.len().max(plan.instances.len()) > BURST_OF_MACHINES;
    plan.patches.truncate(BURST_OF_MACHINES);
    plan.instances.truncate(BURST_OF_MACHINES);
}

/// Machines whose instance is gone. Of a group that is gone, all are, once the pool is to go as well.
fn gone(facts: &Facts<'_>) -> Vec<Arc<Machine>> {
    let snap = facts.snap;
    if snap.pool.is_deleting() && facts.is_group_gone() && !facts.standing.busy {
        let all = snap.machines.iter().filter(|machine| !is_marked_gone(machine));
        return all.cloned().collect();
    }
    facts.matched.gone.iter().map(|machine| Arc::clone(machine)).collect()
}

/// Machines to delete: all Machines of a pool in deletion; Machines whose instance is gone or in deletion; else the
/// Machines chosen by the order, if the instances are known and can be deleted singly.
fn victims(facts: &Facts<'_>, gone: &[Arc<Machine>]) -> Vec<Victim> {
    let snap = facts.snap;
    let live = |machine: &&Arc<Machine>| !facts.is_deleting(machine);
    let victim = |machine: &Arc<Machine>, cause| Victim { machine: Arc::clone(machine), cause };
    if snap.pool.is_deleting() {
        let all = snap.machines.iter().filter(live).take(BURST_OF_MACHINES);
        return all.map(|machine| victim(machine, Cause::PoolGone)).collect();
    }
    let told = snap.machines.iter().filter(|machine| is_marked_gone(machine));
    let lost = gone.iter().chain(told).filter(live);
    let mut all: Vec<_> = lost.map(|machine| victim(machine, Cause::InstanceGone)).collect();
    let going = facts.live().filter(|it| facts.is_taken_away(*it));
    all.extend(going.map(|it| victim(it.machine, Cause::InstanceGoing)));
    let Some(reading) = facts.reading.filter(|it| !it.is_doubtful()) else { return all };
    if !facts.deletes_one_by_one() {
        return all;
    }
    let going: BTreeSet<&str> = all.iter().map(|it| it.machine.uid()).collect();
    let candidates = facts.matched.members.iter().map(|member| {
        let one = candidate::of(facts, *member);
        Candidate { deleting: one.deleting || going.contains(one.uid), ..one }
    });
    let candidates: Vec<_> = candidates.collect();
    // Which ones are too many is up to the system that scales the group. What failed or ends is replaced, and the size stays.
    let external = snap.pool.is_externally_scaled();
    let replicas = usize::try_from(snap.pool.replicas()).unwrap_or(0);
    let wanted = if external { replicas.max(candidates.len()) } else { replicas };
    let chosen = choose(&candidates, wanted, reading.desired, facts.budget());
    let chosen: Vec<_> = chosen
        .into_iter()
        .filter(|(_, cause)| !external || matches!(cause, Cause::Failed | Cause::TerminationNotice))
        .filter_map(|(at, cause)| snap.machines.get(at).map(|machine| victim(machine, cause)))
        .collect();
    all.extend(chosen);
    all.truncate(BURST_OF_MACHINES);
    all
}

/// The provider that has or may have the group: the answers of any other provider prove nothing.
pub fn holder(pool: &MachinePool) -> Option<&str> {
    let status = pool.status.as_ref()?;
    let is_held = status.provider_id.is_some() || status.operation.is_some();
    status.provider.as_deref().filter(|_| is_held)
}

/// The next operation, with its intent.
fn send(plan: &mut Decision, facts: &mut Facts<'_>) {
    let snap = facts.snap;
    let (Some(class), Some(driver)) = (facts.class, facts.driver) else { return };
    let mut held = operation::held(&facts.standing.retries, &facts.basis, snap.now);
    held.until(OperationKind::CreatePool, lost_group::waits(facts));
    plan.retry_at = held.next;
    if facts.standing.busy || facts.standing.reread || !driver.has(OperationKind::CreatePool) {
        return;
    }
    let bring = bring::wanted(facts);
    let replaced = |it: &&Member<'_>| !facts.is_leaving(**it) && facts.is_outdated(**it);
    let outdated = facts.matched.members.iter().filter(replaced).count();
    let replaced = |budget: Budget| if budget.rolls { outdated } else { 0 };
    let wanted = Wanted {
        pool: &snap.pool,
        was_moved: facts.reading.is_some_and(|it| snap.cluster.was(&it.cluster_id)),
        machines: snap.machines.len(),
        drained: snap.machines.iter().all(|machine| has_drained(machine)),
        refused_machines: snap.refused_machines,
        rolls: replaced(facts.budget),
        rolling: replaced(facts.budget()),
        budget: facts.budget,
        model: &facts.model,
        renews_user_data: facts
            .user_data
            .as_ref()
            .map(|it| facts.standing.user_data.as_ref() != Some(it)),
        driver,
        bring: &bring,
        refused: &facts.standing.refused(),
        held: &held,
        shown_at: facts.standing.shown_at(),
        made_again_at: facts
            .standing
            .shown_at()
            .filter(|shown| driver.list_lag.is_some() && snap.now < *shown),
    };
    plan.retry_at = plan.retry_at.into_iter().chain(wanted.made_again_at).min();
    let (ask, kinds) = ask::next(&wanted, facts.group, &facts.matched);
    if let Some(reading) = facts.reading {
        // A failure of an unwanted operation is no failure of this pool.
        let members = &facts.matched.members;
        let is_there = |it: &Member<'_>| match it.instance {
            Some(instance) => !instance.is_going(),
            None => reading.is_doubtful(),
        };
        let may_be_there = |id: &ProviderId| {
            members.iter().find(|it| it.machine.instance_id() == Some(id)).is_some_and(is_there)
        };
        let deletes = members.iter().any(|it| has_drained(it.machine) && is_there(it));
        facts.standing.forget_all_but(&kinds, &bring, deletes, may_be_there);
    }
    let Some(ask) = ask else { return };
    let Some(request) = intent::request(facts, &ask) else { return };
    let (intent, dispatch) = intent::intend(facts, class, &ask, request);
    if let Some((until, text)) = operation::unfounded(facts, &dispatch) {
        plan.retry_at = Some(plan.retry_at.map_or(until, |at| at.min(until)));
        facts.standing.failure = Some((dispatch.kind(), text));
        return;
    }
    if let Ask::Create { .. } = ask {
        lost_group::make_again(facts);
    }
    plan.status.operation = Some(intent);
    plan.dispatch = Some(dispatch);
}
