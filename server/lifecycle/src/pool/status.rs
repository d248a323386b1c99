//! The status of a pool.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use ostler_api::{
    Machine, MachinePool, ProviderId, SpecDigest,
    driver::OperationKind,
    machine::{MachinePhase, Retry, WaitReason},
    machine_pool::{
        MachinePoolStatus, ObservedGroup, PoolConditionType as Type, PoolHotUpdate, PoolPhase,
        VersionCount,
    },
    names,
};

use super::{
    Decision, Facts, Snapshot, Way, budget, config::Upkeep, ending::is_marked_gone,
    group::GroupView, in_place, lost_group, matching::is_ready, name, token,
};
use crate::{
    autoscaler::limits::limits,
    class::FinalizerChange,
    numbered,
    plan::{Event, EventReason},
    snapshot::{ClassView, DriverView},
};

/// Most instances that could not be deleted and are shown.
const MOST_SHOWN: usize = 20;
/// Most versions that are counted.
const MOST_VERSIONS: usize = 20;

/// Why there are no user data while their token is made: that is no news.
const TOKEN_DUE: &str = "WaitingForToken";

/// Advice for a user of a driver with POOL_SCALES_IN.
const SCALES_IN: &str = "the group may delete instances that the core did not name, and the driver cannot switch that \
                         off: their machines are drained as far as there is time";

/// The content of one condition.
struct Said {
    type_: Type,
    status: &'static str,
    reason: &'static str,
    message: String,
}

fn said(type_: Type, holds: bool, reason: &'static str, message: impl Into<String>) -> Said {
    let status = if holds { "True" } else { "False" };
    Said { type_, status, reason, message: message.into() }
}

/// Fills in the status that a pool has after this plan, but for the intent of a new operation, which stands there.
pub(super) fn fill(plan: &mut Decision, facts: &Facts<'_>, configs: Upkeep, over: bool) {
    let pool = &facts.snap.pool;
    let old = pool.status.clone().unwrap_or_default();
    let sent = plan.status.operation.take();
    let standing = &facts.standing;
    let asked = !over && (old.asked || old.operation.is_some() || sent.is_some());
    let mut status = MachinePoolStatus {
        observed_generation: pool.metadata.generation,
        selector: Some(name::selector(pool.name())),
        // While user data are being sent, the group's user data are unknown.
        user_data_hash: standing
            .user_data
            .clone()
            .filter(|_| sent.as_ref().is_none_or(|it| it.user_data_hash.is_none())),
        operation: sent.or_else(|| standing.intent.clone()),
        asked,
        bootstrap_configs: configs.noted,
        retries: standing.retries.clone(),
        replacement_retry: facts.streak.retry.clone(),
        group_retry: facts.group_retry.clone(),
        not_deleted: standing.refused().into_iter().take(MOST_SHOWN).collect(),
        hot_update: Some(standing.hot.clone()).filter(|it| *it != PoolHotUpdate::default()),
        provider_id: match facts.reading {
            Some(reading) => Some(reading.provider_id.clone()),
            None => standing.provider_id.clone(),
        },
        creation_unconfirmed_since: standing
            .unconfirmed_since
            .clone()
            .filter(|_| standing.provider_id.is_none()),
        provider: facts
            .class
            .filter(|_| facts.snap.elsewhere.is_none())
            .map(|class| class.provider.to_string())
            .or_else(|| old.provider.clone()),
        model_hash: Some(facts.model.clone()).filter(|hash| !hash.is_empty()),
        infrastructure_machine_kind: match facts.driver {
            Some(_) => facts.deletes_one_by_one().then(|| names::MACHINE.to_owned()),
            None => old.infrastructure_machine_kind.clone(),
        },
        bootstrap_ready: facts.data.is_ok(),
        infrastructure_ready: is_provisioned(facts),
        observed: observed(facts, &old, &plan.create),
        versions: versions(&facts.snap.machines),
        ..MachinePoolStatus::default()
    };
    count(&mut status, facts);
    if let Some(retry) = facts.standing.retries.iter().find(|retry| retry.not_before.is_none()) {
        status.failure_reason = Some(retry.reason.to_string());
        status.failure_message.clone_from(&retry.message);
    }
    status.phase = Some(phase(pool, &status));
    let all = conditions(facts, &status, configs.held);
    plan.news = news(&old, &all, pool);
    let once = [refusal(&old, &status, facts), scales_in(&old, &all), configs.changed];
    plan.news.extend(once.into_iter().flatten());
    status.conditions = all.into_iter().map(|one| condition(&old, one, pool, facts.snap)).collect();
    let settles = status.operation.is_some()
        || status.phase != Some(PoolPhase::Running)
        || status.up_to_date_replicas != status.replicas && not_replaced(facts).is_none()
        || !facts.matched.new.is_empty()
        || facts.reading.is_none_or(|reading| !reading.absent.is_empty())
        || facts.snap.machines.iter().any(|machine| machine.is_deleting());
    // In the pause before a group is made again nothing happens in it.
    plan.unsettled = pool.is_deleting() || settles && lost_group::waits(facts).is_none();
    plan.status = status;
    if plan.finalizer == FinalizerChange::Remove {
        plan.dispatch = None;
    }
}

fn is_provisioned(facts: &Facts<'_>) -> bool {
    let there = facts.reading.map(|reading| {
        let live = reading.instances.iter().filter(|instance| !instance.is_going()).count();
        reading.fault.is_none() && live >= reading.desired
    });
    let before = facts.snap.pool.status.as_ref().is_some_and(|it| it.infrastructure_ready);
    // Unknown until the next read: the last value stays.
    there.unwrap_or(before && (facts.standing.reread || *facts.group == GroupView::Unknown))
}

fn observed(
    facts: &Facts<'_>,
    old: &MachinePoolStatus,
    create: &[Machine],
) -> Option<ObservedGroup> {
    let Some(reading) = facts.reading else { return old.observed.clone() };
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let members = facts.matched.members.iter().filter_map(|it| it.instance);
    let made = create.iter().filter_map(|it| it.provider_id());
    let held: BTreeSet<&ProviderId> =
        members.map(|it| &it.provider_id).chain(made).chain(&facts.snap.created).collect();
    let mut without: Vec<_> = reading.instances.iter().map(|it| &it.provider_id).collect();
    without.retain(|id| !held.contains(id));
    let new = ObservedGroup {
        desired: number(reading.desired),
        current: number(reading.instances.len()),
        model_hash: Some(reading.model_hash.clone()).filter(|hash| !hash.is_empty()),
        without_machine: number(without.len()),
        without_machine_ids: without.into_iter().take(MOST_SHOWN).cloned().collect(),
        fault: reading.fault.clone(),
        since: old.observed.as_ref().and_then(|it| it.since.clone()),
    };
    if old.observed.as_ref() == Some(&new) {
        return Some(new);
    }
    Some(ObservedGroup { since: Some(Time(facts.snap.now)), ..new })
}

fn count(status: &mut MachinePoolStatus, facts: &Facts<'_>) {
    let machines = &facts.snap.machines;
    let count = |test: &dyn Fn(&Machine) -> bool| {
        let found = machines.iter().filter(|machine| test(machine)).count();
        i32::try_from(found).unwrap_or(i32::MAX)
    };
    status.replicas = count(&|_| true);
    // An instance that the group has not any more, or that goes, is not ready, whatever its Node still says.
    let seen = facts.group.known().filter(|it| !it.is_doubtful());
    let there = seen.map(|reading| {
        let stays = reading.instances.iter().filter(|it| !it.is_going());
        stays.map(|it| &it.provider_id).collect::<BTreeSet<_>>()
    });
    let is_there = |machine: &Machine| {
        !is_marked_gone(machine)
            && there
                .as_ref()
                .is_none_or(|ids| machine.instance_id().is_some_and(|id| ids.contains(id)))
    };
    status.ready_replicas = count(&|machine| is_ready(machine) && is_there(machine));
    status.available_replicas = status.ready_replicas;
    status.up_to_date_replicas = count(&|machine| is_current(machine, &facts.model));
    status.unavailable_replicas =
        facts.snap.pool.replicas().saturating_sub(status.available_replicas).max(0);
}

fn is_current(machine: &Machine, model: &SpecDigest) -> bool {
    let instance = machine.status.as_ref().and_then(|status| status.instance.as_ref());
    !model.is_empty() && instance.is_some_and(|it| it.model_hash.as_ref() == Some(model))
}

fn versions(machines: &[std::sync::Arc<Machine>]) -> Vec<VersionCount> {
    let mut counted: BTreeMap<&str, i32> = BTreeMap::new();
    let of = machines.iter().filter_map(|it| it.status.as_ref()?.version.as_deref());
    for version in of {
        *counted.entry(version).or_default() += 1;
    }
    let all = counted.into_iter().take(MOST_VERSIONS);
    all.map(|(version, replicas)| VersionCount { version: version.to_owned(), replicas }).collect()
}

/// A later match overrides an earlier one.
fn phase(pool: &MachinePool, status: &MachinePoolStatus) -> PoolPhase {
    let wanted = pool.replicas();
    let mut phase = PoolPhase::Pending;
    if status.bootstrap_ready && status.asked {
        phase = PoolPhase::Provisioning;
    }
    if status.replicas > 0 || status.infrastructure_ready {
        phase = PoolPhase::Provisioned;
        if status.infrastructure_ready && status.ready_replicas == wanted {
            phase = PoolPhase::Running;
        } else if status.ready_replicas < wanted {
            phase = PoolPhase::ScalingUp;
        } else if status.ready_replicas > wanted {
            phase = PoolPhase::ScalingDown;
        }
        let scales = matches!(phase, PoolPhase::ScalingUp | PoolPhase::ScalingDown);
        if scales && pool.is_externally_scaled() {
            phase = PoolPhase::Scaling;
        }
    }
    if status.failure_reason.is_some() {
        phase = PoolPhase::Failed;
    }
    if pool.is_deleting() { PoolPhase::Deleting } else { phase }
}

fn conditions(facts: &Facts<'_>, status: &MachinePoolStatus, held: Option<String>) -> Vec<Said> {
    let pool = &facts.snap.pool;
    let wanted = pool.replicas();
    let ready = status.ready_replicas >= wanted;
    let bootstrap = match &facts.data {
        Ok(_) => said(Type::BootstrapReady, true, "Ready", ""),
        // The missing class names the secret.
        Err(_) if facts.class.is_none() => {
            said(Type::BootstrapReady, false, "ClassMissing", class_lacks(facts))
        }
        Err(lack) if token::due(facts.snap).is_some() => {
            said(Type::BootstrapReady, false, TOKEN_DUE, &lack.message)
        }
        Err(lack) => said(Type::BootstrapReady, false, lacking(&lack.reason), &lack.message),
    };
    let infrastructure = infrastructure(facts, status);
    let valid = match limits(&pool.metadata) {
        _ if !facts.broken.is_empty() => {
            said(Type::Valid, false, "ValidationFailed", facts.broken.join("; "))
        }
        Err(why) => said(Type::Valid, false, EventReason::AnnotationInvalid.name(), why),
        Ok(_) => said(Type::Valid, true, "Valid", ""),
    };
    let is_ready = ready
        && status.infrastructure_ready
        && status.bootstrap_ready
        && facts.broken.is_empty()
        && !pool.is_deleting();
    let counted = format!("{} running", share(status.ready_replicas, wanted));
    let living = facts.snap.machines.iter().filter(|it| !it.is_deleting()).count();
    let living = i32::try_from(living).unwrap_or(i32::MAX);
    vec![
        said(Type::Ready, is_ready, if is_ready { "Ready" } else { "NotReady" }, ""),
        bootstrap,
        infrastructure,
        said(
            Type::ReplicasReady,
            ready,
            if ready { "Ready" } else { "WaitingForReplicas" },
            counted,
        ),
        up_to_date(facts, status),
        scaling(Type::ScalingUp, living < wanted && !pool.is_deleting(), living, wanted),
        scaling(Type::ScalingDown, living > wanted || pool.is_deleting(), living, wanted),
        remediating(facts),
        said(
            Type::Deleting,
            pool.is_deleting(),
            if pool.is_deleting() { "Deleting" } else { "NotDeleting" },
            match held {
                _ if !pool.is_deleting() => String::new(),
                Some(held) => held,
                None => format!("left: {}", numbered(status.replicas, "machine")),
            },
        ),
        deletable(facts, status),
        valid,
    ]
}

/// Reason of the condition while there are no user data.
fn lacking(reason: &WaitReason) -> &'static str {
    let mut words = WaitReason::WORDS.iter();
    let word = words.find(|word| **word == reason.as_str()).copied();
    word.filter(|_| *reason != WaitReason::BootstrapDataMissing)
        .unwrap_or(EventReason::DataMissing.name())
}

/// So many machines of all are something.
fn share(some: i32, all: i32) -> String {
    let are = if all == 1 { "is" } else { "are" };
    format!("{some} of {} {are}", numbered(all, "machine"))
}

/// Why the core replaces no Machine of the pool, whatever is wrong with it: reason and text.
fn unchosen(facts: &Facts<'_>) -> Option<(&'static str, &'static str)> {
    let lacks = facts.driver.is_some() && !facts.deletes_one_by_one();
    lacks.then_some(("NotSupported", "the driver cannot delete one instance"))
}

fn remediating(facts: &Facts<'_>) -> Said {
    let type_ = Type::Remediating;
    let failed = facts.snap.machines.iter().filter(|it| it.phase() == MachinePhase::Failed).count();
    let have = if failed == 1 { "has" } else { "have" };
    let mut text = format!("{} {have} failed", numbered(failed, "machine"));
    if let Some(streak) = facts.streak.message() {
        text = format!("{text}; {streak}");
    }
    match (failed, unchosen(facts)) {
        (0, _) => said(type_, false, "NoneFailed", ""),
        (_, None) => said(type_, true, "MachinesFailed", text),
        (_, Some((reason, why))) => said(type_, false, reason, format!("{text}; {why}")),
    }
}

/// Why instances of an old model are not replaced.
fn not_replaced(facts: &Facts<'_>) -> Option<(&'static str, &'static str)> {
    let pool = &facts.snap.pool;
    if facts.driver.is_some_and(|driver| driver.pool_surge) {
        return None;
    }
    let others = ("ScaledByOthers", "another system scales the pool: delete those to replace");
    unchosen(facts)
        .or_else(|| pool.is_externally_scaled().then_some(others))
        .or_else(|| pool.is_paused().then_some(("Paused", "the pool is paused")))
        .or_else(|| (!facts.broken.is_empty()).then_some(("ValidationFailed", "see Valid")))
        .or_else(|| (!facts.budget.rolls).then_some(("OnDelete", "delete those to replace")))
}

/// The state of the current model, and how the other instances get it.
fn up_to_date(facts: &Facts<'_>, status: &MachinePoolStatus) -> Said {
    let type_ = Type::MachinesUpToDate;
    let text = format!("{} up to date", share(status.up_to_date_replicas, status.replicas));
    let all = status.up_to_date_replicas == status.replicas;
    let unfinished = status.hot_update.as_ref().is_some_and(|it| !it.unfinished.is_empty());
    if all && !unfinished {
        return said(type_, true, "UpToDate", text);
    }
    let (mut hot, mut in_place, mut stay, mut made) = (0_usize, 0_usize, 0_usize, 0_usize);
    for member in facts.live() {
        match facts.way(member) {
            Way::Hot if member.is_being_made() => made += 1,
            Way::Hot => hot += 1,
            Way::InPlace => in_place += 1,
            Way::Stays => stay += 1,
            Way::Current | Way::Replace => {}
        }
    }
    if all && hot + made == 0 {
        return said(type_, true, "UpToDate", text);
    }
    let failing =
        status.retries.iter().find(|it| it.kind == OperationKind::UpdatePoolMachine.into());
    let mut parts = vec![text];
    if let Some(failing) = failing {
        let id = failing.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        parts.push(format!("{id}: {}", failing.message.as_deref().unwrap_or_default()));
    }
    if hot > 0 {
        parts.push(format!("the driver updates {hot} without a drain"));
    }
    if made > 0 {
        parts
            .push(format!("{made} wait until the driver says SUCCEEDED of them: it says CREATING"));
    }
    if in_place > 0 {
        let begun = facts.live().filter(|it| in_place::is_missing(it.machine)).count();
        parts.push(format!("{in_place} to update in place, {begun} of them now"));
    }
    if stay > 0 {
        parts.push(format!("{stay} left unchanged: the driver cannot update one instance"));
    }
    if let Some(why) = status.hot_update.as_ref().and_then(|it| it.message.as_ref()) {
        parts.push(format!("running ones cannot get it: {why}"));
    }
    let reason = match (failing.is_some(), hot, in_place, stay) {
        (true, ..) => "UpdatePoolMachineFailed",
        (false, 1.., ..) => "UpdatingRunning",
        (false, 0, 1.., _) => "UpdatingInPlace",
        (false, 0, 0, _) if made > 0 => "WaitingForInstances",
        (false, 0, 0, 1..) => "DriverLacksVerb",
        (false, 0, 0, 0) => match not_replaced(facts) {
            None => "RollingOut",
            Some((reason, why)) => {
                parts.push(format!("the others are not replaced: {why}"));
                reason
            }
        },
    };
    said(type_, false, reason, parts.join("; "))
}

fn scaling(type_: Type, holds: bool, living: i32, wanted: i32) -> Said {
    let message = holds.then(|| format!("{}, {wanted} wanted", numbered(living, "machine")));
    let message = message.unwrap_or_default();
    said(type_, holds, if holds { "Scaling" } else { "NotScaling" }, message)
}

/// Without a driver, the condition keeps the last driver's word.
fn deletable(facts: &Facts<'_>, status: &MachinePoolStatus) -> Said {
    let mut old = facts.snap.pool.status.iter().flat_map(|status| &status.conditions);
    let before = old.find(|it| it.type_ == Type::Deletable.as_str());
    if facts.driver.is_none() && before.is_none_or(|it| it.status == "Unknown") {
        return Said { status: "Unknown", ..said(Type::Deletable, false, "DriverUnavailable", "") };
    }
    if status.infrastructure_machine_kind.is_some() {
        let scales_in = match facts.driver {
            Some(driver) => driver.pool_scales_in,
            None => before.is_some_and(|it| it.message == SCALES_IN),
        };
        let text = if scales_in { SCALES_IN } else { "" };
        return said(Type::Deletable, true, "Supported", text);
    }
    let why = "the driver cannot delete one instance of a group: the group chooses which instances go when it shrinks, and \
               their machines are drained as far as there is time";
    said(Type::Deletable, false, "NotSupported", why)
}

/// Why there is no class, and what to do.
fn class_lacks(facts: &Facts<'_>) -> String {
    let class = &facts.snap.pool.spec.template.spec.class;
    let name = &class.name;
    if class.kind != names::MACHINE_CLASS {
        let kind = &class.kind;
        return format!("spec.template.spec.class.kind is {kind}: it has to be MachineClass");
    }
    match &facts.snap.class {
        ClassView::NotHeld(why) => format!("machine class {name} cannot be used: {why}"),
        ClassView::NamespaceDenied => {
            format!("machine class {name} is in a namespace that this core may not read")
        }
        ClassView::LastKnown(_) => format!("machine class {name} was deleted: create it again"),
        ClassView::Unknown | ClassView::Missing | ClassView::Known(_) => {
            format!("machine class {name} does not exist in the namespace of the pool: create it")
        }
    }
}

fn infrastructure(facts: &Facts<'_>, status: &MachinePoolStatus) -> Said {
    let type_ = Type::InfrastructureReady;
    let driver = &facts.snap.driver;
    let Some(class) = facts.class else {
        return said(type_, false, "ClassMissing", class_lacks(facts));
    };
    if let Some(holder) = &facts.snap.elsewhere {
        let text = format!(
            "the group is that of provider {holder:?}, and machine class {} is one of {:?}: name a class of {holder:?} \
             again. A pool that is deleted waits for that, too",
            class.name, class.provider
        );
        return said(type_, false, "ProviderChanged", text);
    }
    // The outcome for one instance says nothing about the group.
    let of_group = |kind: &OperationKind| *kind != OperationKind::UpdatePoolMachine;
    if let Some((kind, text)) = facts.standing.failure.as_ref().filter(|it| of_group(&it.0)) {
        return said(type_, false, failed(Some(*kind)), text);
    }
    let kind = |retry: &Retry| OperationKind::from_name(retry.kind.as_str());
    let failed_before = |retry: &&Retry| kind(retry).is_none_or(|kind| of_group(&kind));
    if let Some(retry) = facts.standing.retries.iter().find(failed_before) {
        let text = retry.message.clone().unwrap_or_default();
        let kind = kind(retry);
        let is_doubt = retry.reason == WaitReason::AbsenceUnconfirmed;
        let reason = if is_doubt { "AbsenceUnconfirmed" } else { failed(kind) };
        return said(type_, false, reason, text);
    }
    let Some(ready) = facts.driver else {
        let connected = matches!(driver, DriverView::NotReady(_));
        let reason = if connected { "DriverNotReady" } else { "DriverUnavailable" };
        return said(type_, false, reason, driver.lack(&class.provider).unwrap_or_default());
    };
    if !ready.has(OperationKind::CreatePool) {
        return said(type_, false, "DriverLacksVerb", "the driver has no groups");
    }
    if let Some((reason, text)) = trouble(facts, status) {
        return said(type_, false, reason, text);
    }
    if status.infrastructure_ready {
        return said(type_, true, "Ready", "");
    }
    let text = status.observed.as_ref().map_or_else(
        || "the group is not there yet".to_owned(),
        |it| format!("{} of {} instances", it.current, it.desired),
    );
    said(type_, false, "WaitingForInstances", text)
}

/// The trouble with the group, from the driver's answers: reason and text.
fn trouble(facts: &Facts<'_>, status: &MachinePoolStatus) -> Option<(&'static str, String)> {
    if let GroupView::Unreadable(failure) = facts.group {
        return Some(("GetPoolStatusFailed", format!("{}: {}", failure.code, failure.text())));
    }
    if let Some(text) = lost_group::message(facts) {
        return Some(("GroupMissing", text));
    }
    if let Some(fault) = status.observed.as_ref().and_then(|it| it.fault.clone()) {
        return Some(("GroupFaulty", fault));
    }
    let surplus = facts.unmade().count().saturating_sub(facts.room());
    (surplus > 0).then(|| {
        let text = format!(
            "the driver lists {} for which no machine is made: neither the pool nor its group wants so many",
            numbered(surplus, "instance")
        );
        ("TooManyInstances", text)
    })
}

/// Reason of the condition and of the event while a verb fails.
const fn failed(kind: Option<OperationKind>) -> &'static str {
    match kind {
        Some(OperationKind::CreatePool) => "CreatePoolFailed",
        Some(OperationKind::UpdatePool) => "UpdatePoolFailed",
        Some(OperationKind::DeletePool) => "DeletePoolFailed",
        Some(OperationKind::DeletePoolMachines) => "DeletePoolMachinesFailed",
        _ => "OperationFailed",
    }
}

fn condition(
    old: &MachinePoolStatus,
    said: Said,
    pool: &MachinePool,
    snap: &Snapshot,
) -> Condition {
    let before = old.conditions.iter().find(|it| it.type_ == said.type_.as_str());
    let since = before.filter(|it| it.status == said.status);
    Condition {
        type_: said.type_.as_str().to_owned(),
        status: said.status.to_owned(),
        reason: said.reason.to_owned(),
        message: said.message,
        observed_generation: pool.metadata.generation,
        last_transition_time: since.map_or(Time(snap.now), |it| it.last_transition_time.clone()),
    }
}

/// A user is told once per old model that running instances cannot get the current model.
fn refusal(old: &MachinePoolStatus, new: &MachinePoolStatus, facts: &Facts<'_>) -> Option<Event> {
    let said = |status: &MachinePoolStatus| status.hot_update.clone().unwrap_or_default();
    let (old, new) = (said(old), said(new));
    let told = |it: &SpecDigest| old.refused.contains(it);
    let known = old.model_hash == new.model_hash && new.refused.iter().all(told);
    let message = new.message.filter(|_| !known)?;
    let then = match not_replaced(facts) {
        _ if budget::updates_in_place(&facts.snap.pool) => "updated in place".to_owned(),
        None => "replaced".to_owned(),
        Some((_, why)) => format!("not replaced: {why}"),
    };
    let message =
        format!("running instances cannot get the current model: {message}; they are {then}");
    Some(Event::normal(EventReason::HotUpdateRefused, message))
}

/// A user is told once that the group may scale in by itself.
fn scales_in(old: &MachinePoolStatus, all: &[Said]) -> Option<Event> {
    let says = all.iter().any(|it| it.message == SCALES_IN);
    let said = old.conditions.iter().any(|it| it.message == SCALES_IN);
    let event = || Event::warning(EventReason::GroupScalesIn, SCALES_IN.to_owned());
    (says && !said).then(event)
}

/// Events for a user: a condition that is false for a new reason, and a condition that only the user can end.
fn news(old: &MachinePoolStatus, all: &[Said], pool: &MachinePool) -> Vec<Event> {
    let told = [Type::BootstrapReady, Type::InfrastructureReady, Type::Deletable, Type::Valid];
    let is_new = |one: &&Said| {
        let before = old.conditions.iter().find(|it| it.type_ == one.type_.as_str());
        let same = before.is_some_and(|it| {
            it.status == one.status
                && it.reason == one.reason
                && (it.observed_generation == pool.metadata.generation || it.message == one.message)
        });
        told.contains(&one.type_) && one.status == "False" && !same
    };
    // Waiting is no warning.
    let waits = [WaitReason::BootstrapNotReady, WaitReason::NotObserved];
    let waits = waits.map(|reason| lacking(&reason));
    let quiet = ["WaitingForInstances", "DriverUnavailable", TOKEN_DUE];
    let quiet = |one: &&Said| quiet.into_iter().chain(waits).any(|it| it == one.reason);
    let of_note = all.iter().filter(is_new).filter(|one| !quiet(one));
    let tell = |one: &Said| {
        let mut reasons = EventReason::ALL.into_iter();
        let reason = reasons.find(|it| it.name() == one.reason);
        let lacks = (one.type_ == Type::BootstrapReady).then_some(EventReason::DataMissing);
        Some(Event::warning(reason.or(lacks)?, one.message.clone()))
    };
    of_note.filter_map(tell).collect()
}
