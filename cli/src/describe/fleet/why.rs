//! One line: why nothing happens, or the step under way.

use jiff::{SignedDuration, Timestamp};
use ostler_api::machine::WaitReason;
use ostler_api::machine_deployment::{
    MachineDeployment, MachineDeploymentCondition, MachineDeploymentConditionType as OfDeployment,
};
use ostler_api::machine_set::MachineSetConditionType as OfSet;
use ostler_api::names::{annotation, label};
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::deployment::conditions::{self, hindrance};
use ostler_lifecycle::set::FOREIGN;
use ostler_lifecycle::streak::REPLACEMENTS_FAIL;
use ostler_lifecycle::{numbered, selector};

use super::{Fleet, Runner};
use crate::describe::page::unanswered;
use crate::progress::{self, SELECTS_ALL, creation_error, resuming};

/// Waits that hold up other machines, too, each with an explanation.
const HOLDS: [(WaitReason, &str); 7] = [
    (WaitReason::MassFailure, "half of the machines are lost: one is replaced, the others wait"),
    (WaitReason::ReplacementBudget, "no more machines may be replaced at the same time"),
    (WaitReason::PodDisruptionBudget, "a PodDisruptionBudget refuses evictions"),
    (WaitReason::MisconfiguredBudget, "a PodDisruptionBudget allows no eviction at all"),
    (
        WaitReason::SeveralBudgets,
        "several PodDisruptionBudgets select a pod, so it is never evicted",
    ),
    (WaitReason::EvictionFailing, "evictions fail"),
    (WaitReason::CapacityExhausted, "quota or capacity is short"),
];

/// What blocks others is named before what a driver, an API or a user owes, which is all that stands in neither list.
const FIRST: [WaitReason; 2] = [WaitReason::MassFailure, WaitReason::ReplacementBudget];

/// Named last: blocked drains, waits that end by themselves, and waits that are only worth a note.
const LATER: [WaitReason; 36] = [
    WaitReason::EvictionFailing,
    WaitReason::SeveralBudgets,
    WaitReason::MisconfiguredBudget,
    WaitReason::PodDisruptionBudget,
    WaitReason::PreDrainHook,
    WaitReason::PreTerminateHook,
    WaitReason::OtherFinalizers,
    WaitReason::NodeNotCordoned,
    WaitReason::PodsTerminating,
    WaitReason::VolumesAttached,
    WaitReason::VolumesMoving,
    WaitReason::InPlaceUpdateFailed,
    WaitReason::NodeUpdating,
    WaitReason::NodeMissing,
    WaitReason::NodeUnhealthy,
    WaitReason::NodeNotReady,
    WaitReason::CriticalComponentsNotReady,
    WaitReason::NodeStale,
    WaitReason::ProviderIdMismatch,
    WaitReason::NodeNotJoined,
    WaitReason::BootstrapNotReady,
    WaitReason::InstanceNotReady,
    WaitReason::InstanceNotInitialized,
    WaitReason::PoolDeletion,
    WaitReason::OperationQueued,
    WaitReason::DriverWorking,
    WaitReason::Failed,
    WaitReason::NotObserved,
    WaitReason::VolumesNotObserved,
    WaitReason::ClassReview,
    WaitReason::HotUpdateBudget,
    WaitReason::HotUpdateRefused,
    WaitReason::NodeAmbiguous,
    WaitReason::NodeUnschedulable,
    WaitReason::Paused,
    WaitReason::Preserved,
];

/// A Lease that was renewed so long ago is none of a process whose clock is wrong.
const DEAD: SignedDuration = SignedDuration::from_mins(10);

/// The most important obstacle of the fleet; without an obstacle, the step under way.
pub(super) fn why(fleet: &Fleet, now: Timestamp) -> String {
    held_up(fleet, now).unwrap_or_else(|| goes_on(fleet))
}

/// The most important obstacle of the fleet.
pub(super) fn held_up(fleet: &Fleet, now: Timestamp) -> Option<String> {
    nobody(fleet)
        .or_else(|| refused(fleet))
        .or_else(|| foreign(fleet))
        .or_else(|| not_seen(fleet))
        .or_else(|| paused(fleet))
        .or_else(|| deadline(fleet))
        .or_else(|| not_created(fleet))
        .or_else(|| held(fleet))
        .or_else(|| frozen(fleet))
        .or_else(|| hindered(fleet))
        .or_else(|| fails_again(fleet))
        .or_else(|| waiting(fleet))
        .or_else(|| failure(fleet))
        .or_else(|| asked(fleet, now))
}

fn nobody(fleet: &Fleet) -> Option<String> {
    const START: &str =
        "start a core whose --controllers include them, or machine-controller-manager";
    let silent = fleet.runner.silent();
    match &fleet.runner {
        Runner::Nobody => Some(format!("no process runs sets: {START}")),
        Runner::Unserved(why) => Some(why.clone()),
        Runner::Process { silent: Some(ago), .. } if *ago >= DEAD => {
            silent.map(|silent| format!("a process that runs sets: {silent}; {START}"))
        }
        Runner::Process { .. } | Runner::Unknown => None,
    }
}

fn condition<'a>(
    deployment: &'a MachineDeployment,
    kind: &OfDeployment,
) -> Option<&'a MachineDeploymentCondition> {
    deployment.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == *kind)
}

pub(super) fn said(message: Option<&String>) -> String {
    message.filter(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default()
}

/// A condition of one of the sets, with the set.
fn of_sets<'a>(fleet: &'a Fleet, kind: &OfSet) -> Option<(&'a MachineSet, String)> {
    fleet.sets.iter().find_map(|set| {
        let status = set.status.as_ref()?;
        let found = status.conditions.iter().find(|condition| condition.type_ == *kind)?;
        Some((set, said(found.message.as_ref())))
    })
}

fn refused(fleet: &Fleet) -> Option<String> {
    if let Some(deployment) = &fleet.deployment {
        if let Some(found) = condition(deployment, &OfDeployment::Valid) {
            return Some(format!("its spec is refused{}", said(found.message.as_ref())));
        }
        if deployment.spec.selector.as_ref().is_some_and(selector::is_empty) {
            return Some(SELECTS_ALL.to_owned());
        }
    }
    of_sets(fleet, &OfSet::Valid)
        .map(|(set, message)| format!("the spec of machineset {} is refused{message}", set.name()))
}

/// A set that is frozen and lacks machines. Any other waits for nothing: it creates none anyway.
fn frozen(fleet: &Fleet) -> Option<String> {
    fleet.sets.iter().filter(|set| set.label(label::FREEZE) == Some("True")).find_map(|set| {
        let (name, wanted) = (set.name(), set.spec.replicas());
        let deleting = fleet.of(set).iter().filter(|machine| machine.is_deleting()).count();
        let stay = fleet.of(set).len() - deleting;
        let lacks = !set.is_deleting() && i64::try_from(stay).is_ok_and(|it| it < wanted.into());
        lacks.then(|| {
            format!(
                "frozen: machineset {name} wants {wanted} machines, has {stay} and deletes {deleting} more; it creates \
                 none until enough are gone, or until `kubectl annotate machineset {name} {}=true`{}",
                annotation::UNFREEZE,
                and_waits(fleet)
            )
        })
    })
}

fn foreign(fleet: &Fleet) -> Option<String> {
    fleet.sets.iter().find_map(|set| {
        let mut conditions = set.status.as_ref()?.conditions.iter();
        let found = conditions.find(|it| it.reason.as_deref() == Some(FOREIGN))?;
        let message = said(found.message.as_ref());
        Some(format!("another process runs machineset {}{message}", set.name()))
    })
}

fn not_seen(fleet: &Fleet) -> Option<String> {
    let deployment = fleet.deployment.as_ref()?;
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    (deployment.metadata.generation > observed)
        .then(|| "the last change was not looked at yet".to_owned())
}

fn paused(fleet: &Fleet) -> Option<String> {
    let resume = resuming(fleet.deployment.as_ref()?)?;
    Some(format!("paused: a new template is not rolled out until {resume}; scaling goes on"))
}

fn deadline(fleet: &Fleet) -> Option<String> {
    let deployment = fleet.deployment.as_ref()?;
    let progress = condition(deployment, &OfDeployment::Progressing)?;
    (progress.reason.as_deref() == Some(conditions::reason::DEADLINE)).then(|| {
        let seconds = deployment.spec.progress_deadline_seconds.unwrap_or_default();
        let worst = and_waits(fleet);
        format!("no progress for {seconds} s, the deadline is exceeded{worst}; go back with `ostler rollout undo {}`", deployment.name())
    })
}

fn not_created(fleet: &Fleet) -> Option<String> {
    let why = creation_error(fleet.deployment.as_ref()?)?;
    Some(format!("there is no machineset for the template: {why}"))
}

/// Whether a machine waits for what holds others too.
pub(super) fn hold(machine: &Machine) -> Option<&'static (WaitReason, &'static str)> {
    let reason = reason(machine)?;
    HOLDS.iter().find(|(hold, _)| hold == reason)
}

fn reason(machine: &Machine) -> Option<&WaitReason> {
    Some(&machine.status.as_ref()?.waiting_for.as_ref()?.reason)
}

fn rank(reason: &WaitReason) -> usize {
    let place = |list: &[WaitReason]| list.iter().position(|it| it == reason);
    let later = || place(&LATER).map(|at| FIRST.len() + 1 + at);
    place(&FIRST).or_else(later).unwrap_or(FIRST.len())
}

/// The first of the waiting machines whose wait blocks most.
fn worst<'a>(machines: impl Iterator<Item = &'a Machine>) -> Option<&'a Machine> {
    let ranked = machines.filter_map(|machine| Some((rank(reason(machine)?), machine)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, machine)| machine)
}

fn held(fleet: &Fleet) -> Option<String> {
    let machine = worst(fleet.all())?;
    let (reason, why) = hold(machine)?;
    let alike = fleet.all().filter(|it| self::reason(it) == Some(reason)).count();
    let message = machine.status.as_ref()?.waiting_for.as_ref()?.message.as_ref();
    let message = said(message);
    Some(format!("{why}: {} {reason}{message}", who(machine.name(), alike)))
}

/// What the controller says of the rollout: a user has to act, or a time to pass.
fn hindered(fleet: &Fleet) -> Option<String> {
    let by = hindrance(&fleet.deployment.as_ref()?.status.as_ref()?.conditions)?;
    Some(format!("{by}{}", and_waits(fleet)))
}

/// The worst wait of a machine, behind something else.
fn and_waits(fleet: &Fleet) -> String {
    waiting(fleet).map(|text| format!("; {text}")).unwrap_or_default()
}

fn waiting(fleet: &Fleet) -> Option<String> {
    worst_wait(|| fleet.all())
}

/// The wait that blocks most, how many machines it holds, and how many wait for something else.
pub(in crate::describe) fn worst_wait<'a, I: Iterator<Item = &'a Machine>>(
    machines: impl Fn() -> I,
) -> Option<String> {
    let machine = worst(machines())?;
    let wait = machine.status.as_ref()?.waiting_for.as_ref()?;
    let (alike, others): (Vec<_>, Vec<_>) =
        machines().filter_map(reason).partition(|it| **it == wait.reason);
    let others = match others.len() {
        0 => String::new(),
        1 => " (and 1 waits for something else)".to_owned(),
        more => format!(" (and {more} wait for something else)"),
    };
    let message = said(wait.message.as_ref());
    let who = who(machine.name(), alike.len());
    Some(format!("{who} {}{message}{others}", wait.reason))
}

/// `machine a waits for`, or `51 machines, such as a, wait for`.
fn who(name: &str, count: usize) -> String {
    if count < 2 {
        return format!("machine {name} waits for");
    }
    format!("{count} machines, such as {name}, wait for")
}

/// A set whose Machines fail one after the other, so that the next replacement waits.
fn fails_again(fleet: &Fleet) -> Option<String> {
    fleet.sets.iter().find_map(|set| {
        let mut all = set.status.iter().flat_map(|status| &status.conditions);
        let found = all.find(|it| it.reason.as_deref() == Some(REPLACEMENTS_FAIL))?;
        Some(format!("machineset {}{}", set.name(), said(found.message.as_ref())))
    })
}

fn failure(fleet: &Fleet) -> Option<String> {
    of_sets(fleet, &OfSet::ReplicaFailure).map(|(set, message)| {
        format!("machineset {} cannot create or delete a machine{message}", set.name())
    })
}

/// The machine whose driver has been asked for longest and has not answered; or one that the core has written nothing about.
fn asked(fleet: &Fleet, now: Timestamp) -> Option<String> {
    if fleet.runner.silent().is_some() {
        return None;
    }
    let of = |machine: &Machine| Some((machine.intent()?.started_at, unanswered(machine, now)?));
    let mut open: Vec<_> =
        fleet.all().filter_map(|machine| Some((of(machine)?, machine.name()))).collect();
    open.sort();
    let more = |others: usize| match others {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    if let Some(((_, what), name)) = open.first() {
        return Some(format!("{what}, for machine {name}{}", more(open.len() - 1)));
    }
    let mut new = fleet.all().filter(|machine| machine.status.is_none());
    let name = new.next()?.name();
    let others = more(new.count());
    Some(format!("the core, which has written nothing about machine {name}{others} yet"))
}

fn goes_on(fleet: &Fleet) -> String {
    let deleting = fleet.all().filter(|machine| machine.is_deleting()).count();
    if deleting > 0 {
        let text = format!("deletion of {}", numbered(deleting, "machine"));
        return fleet
            .runner
            .silent()
            .map_or_else(|| text.clone(), |silent| format!("{silent}: {text}"));
    }
    let left = if let Some(deployment) = &fleet.deployment {
        let progress = progress::of(deployment);
        (!progress.is_complete()).then(|| progress.text().to_owned())
    } else {
        let wanted: i32 = fleet.sets.iter().map(|set| set.spec.replicas()).sum();
        let there = fleet.all().count();
        (i32::try_from(there) != Ok(wanted))
            .then(|| format!("there are {there} machines, and {wanted} are wanted"))
    };
    left.map_or_else(
        || "nothing; up to date".to_owned(),
        |left| match fleet.runner.silent() {
            Some(silent) => format!("{silent}: {left}"),
            None => format!("nothing; it goes on: {left}"),
        },
    )
}
