//! The page about a fleet. Pure: what was read goes in, text comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::machine::{MachinePhase, MachineStep};
use ostler_api::machine_deployment::{
    MachineDeployment, MachineDeploymentSpec, MachineDeploymentStatus,
};
use ostler_api::machine_set::MachineSetConditionType as OfSet;
use ostler_api::names::label;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::autoscaler::group::Group;
use ostler_lifecycle::deployment::fenceposts;
use serde_json::json;

use super::why::{held_up, hold, said, why};
use super::{Fleet, Runner, revision};
use crate::describe::autoscaler;
use crate::describe::found::Found;
use crate::describe::sheet::{Page, event_lines};
use crate::table::span;

/// At most so many machines at rest get a row each; more are counted.
const MOST_ALIKE: usize = 10;

/// Names in a line about many.
const MOST_NAMED: usize = 3;

/// The whole page.
fn render(fleet: &Fleet, now: Timestamp) -> String {
    let mut page = Page::wide();
    match &fleet.deployment {
        Some(deployment) => head(&mut page, deployment, now),
        None => fleet.sets.iter().for_each(|set| head_of_set(&mut page, set, now)),
    }
    beside(&mut page, fleet.all());
    page.line("Run by", &runner(&fleet.runner));
    page.line("Waits for", &why(fleet, now));
    page.chapter("Tree");
    match &fleet.deployment {
        Some(deployment) => {
            page.entry(&format!("machinedeployment {}", deployment.name()));
            for (index, set) in fleet.sets.iter().enumerate() {
                let last = index + 1 == fleet.sets.len();
                let (branch, stem) = branch(last);
                page.entry(&format!("{branch}machineset {}: {}", set.name(), about(fleet, set)));
                machines(&mut page, stem, fleet.of(set), now);
            }
        }
        None => {
            for set in &fleet.sets {
                page.entry(&format!("machineset {}: {}", set.name(), about(fleet, set)));
                machines(&mut page, "", fleet.of(set), now);
            }
        }
    }
    event_lines(&mut page, &fleet.events, now);
    page.text()
}

/// The page and its data.
pub(in crate::describe) fn found(fleet: &Fleet, now: Timestamp) -> Found {
    let page = render(fleet, now);
    let waits: Vec<_> = held_up(fleet, now).into_iter().collect();
    let machines: Vec<_> = fleet.all().collect();
    match (&fleet.deployment, &fleet.sets) {
        (Some(deployment), sets) => {
            let rest = json!({ "sets": sets, "machines": machines, "events": fleet.events });
            Found::new(page, deployment, &waits, rest)
        }
        (None, sets) => {
            let rest = json!({ "machines": machines, "events": fleet.events });
            Found::new(page, &sets.first(), &waits, rest)
        }
    }
}

const fn branch(last: bool) -> (&'static str, &'static str) {
    if last { ("└─ ", "   ") } else { ("├─ ", "│  ") }
}

fn age(meta: &ObjectMeta, now: Timestamp) -> String {
    let made = meta.creation_timestamp.as_ref();
    let age = made.map(|made| format!(", {} old", span(now.duration_since(made.0))));
    let deleted = meta.deletion_timestamp.as_ref();
    let deleted =
        deleted.map(|at| format!(", being deleted for {}", span(now.duration_since(at.0))));
    age.unwrap_or_default() + &deleted.unwrap_or_default()
}

/// Namespace, name and age of an object.
pub(in crate::describe) fn named(meta: &ObjectMeta, now: Timestamp) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}{}", text(&meta.namespace), text(&meta.name), age(meta, now))
}

fn head(page: &mut Page, deployment: &MachineDeployment, now: Timestamp) {
    page.line("MachineDeployment", &named(&deployment.metadata, now));
    page.line("Strategy", &strategy(&deployment.spec));
    page.line("Class", &deployment.spec.template.spec.class.name);
    let none = MachineDeploymentStatus::default();
    let status = deployment.status.as_ref().unwrap_or(&none);
    page.line(
        "Machines",
        &format!(
            "{} desired, {} current, {} up-to-date, {} ready, {} available",
            deployment.spec.replicas(),
            status.replicas,
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas
        ),
    );
    autoscaler::lines(page, &Group::Deployment(Arc::new(deployment.clone())));
    for condition in &status.conditions {
        let reason = condition.reason.as_deref().unwrap_or_default();
        page.line(condition.type_.as_str(), &format!("{} ({reason})", condition.status));
    }
}

/// Instances that are paid for, of machines that no number above counts as working.
pub(in crate::describe) fn beside<'a>(
    page: &mut Page,
    machines: impl Iterator<Item = &'a Machine>,
) {
    let (mut deleting, mut failed) = (0, 0);
    for machine in machines.filter(|it| it.instance_id().is_some()) {
        if machine.is_deleting() {
            deleting += 1;
        } else if machine.phase() == MachinePhase::Failed {
            failed += 1;
        }
    }
    let words = [(deleting, "being deleted"), (failed, "failed")];
    let words = words.iter().filter(|(count, _)| *count > 0);
    let words: Vec<_> = words.map(|(count, what)| format!("{count} of machines {what}")).collect();
    if !words.is_empty() {
        page.line("Instances", &format!("{}: they exist, and are paid for", words.join(", ")));
    }
}

fn head_of_set(page: &mut Page, set: &MachineSet, now: Timestamp) {
    page.line("MachineSet", &named(&set.metadata, now));
    page.line("Class", &set.spec.template.spec.class.name);
    let owners = set.metadata.owner_references.iter().flatten();
    if let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) {
        page.line("Belongs to", &format!("{} {}", owner.kind.to_lowercase(), owner.name));
    }
    let conditions = set.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    for condition in conditions {
        let reason = condition.reason.as_deref().unwrap_or_default();
        page.line(condition.type_.as_str(), &format!("{} ({reason})", condition.status));
    }
}

/// The strategy with its effective limits, which can differ from the written limits: maxSurge or maxUnavailable is at
/// least 1.
fn strategy(spec: &MachineDeploymentSpec) -> String {
    let strategy = &spec.strategy;
    let name = strategy.type_.as_ref().map_or("RollingUpdate", |it| it.as_str());
    let rolling = strategy.rolling_update.as_ref().map(|it| (&it.max_surge, &it.max_unavailable));
    let in_place = strategy.in_place_update.as_ref().map(|it| (&it.max_surge, &it.max_unavailable));
    let Some((surge, unavailable)) = rolling.or(in_place) else { return name.to_owned() };
    let number = |counts: i32, written: &Option<IntOrString>| match written {
        Some(IntOrString::String(text)) => format!("{counts} ({text})"),
        Some(IntOrString::Int(_)) | None => counts.to_string(),
    };
    let limits = fenceposts::of(spec);
    format!(
        "{name}: at most {} more than wanted, at most {} fewer available",
        number(limits.surge, surge),
        number(limits.unavailable, unavailable)
    )
}

fn runner(runner: &Runner) -> String {
    if let Some(silent) = runner.silent() {
        return silent;
    }
    match runner {
        Runner::Unknown => "not known: the leases cannot be read in this namespace".to_owned(),
        Runner::Nobody | Runner::Unserved(_) => "no process".to_owned(),
        Runner::Process { holder, runs_machines: Some(true), .. } => {
            format!("{holder}, which runs the machines too")
        }
        Runner::Process { holder, runs_machines: Some(false), .. } => {
            format!("{holder}, another process than the one that runs the machines")
        }
        Runner::Process { holder, runs_machines: None, .. } => {
            format!("{holder}; no process runs the machines")
        }
    }
}

/// The numbers of a set, and its marks.
fn about(fleet: &Fleet, set: &MachineSet) -> String {
    let machines = fleet.of(set);
    let available = machines.iter().filter(|machine| {
        !machine.is_deleting()
            && matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available)
    });
    let numbers = format!(
        "{} desired, {} current, {} available",
        set.spec.replicas(),
        machines.len(),
        available.count()
    );
    let newest =
        fleet.deployment.is_some() && fleet.sets.first().is_some_and(|it| it.uid() == set.uid());
    let conditions = set.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let condition = |kind: &OfSet, what: &str| {
        let found = conditions.iter().find(|it| it.type_ == *kind)?;
        Some(format!("{what}{}", said(found.message.as_ref())))
    };
    let mut held = machines.iter().filter_map(hold);
    let held = held.next().map(|(reason, _)| {
        let more = held.filter(|(other, _)| other == reason).count();
        format!("{} held by {reason}", more + 1)
    });
    let marks = [
        revision(set).map(|number| format!("revision {number}")),
        newest.then(|| "newest".to_owned()),
        (set.label(label::FREEZE) == Some("True")).then(|| "frozen".to_owned()),
        set.label(label::SCALE_UP_DISABLED).map(|_| "creates none".to_owned()),
        set.is_deleting().then(|| "being deleted".to_owned()),
        held,
        condition(&OfSet::Valid, "refused"),
        condition(&OfSet::ReplicaFailure, "failure"),
    ];
    let marks: Vec<String> = marks.into_iter().flatten().collect();
    if marks.is_empty() { numbers } else { format!("{numbers} ({})", marks.join(", ")) }
}

/// Machines with something to report come first; of many alike machines, some are shown.
pub(in crate::describe) fn machines(
    page: &mut Page,
    stem: &str,
    machines: &[Machine],
    now: Timestamp,
) {
    let mut alike: BTreeMap<_, Vec<&Machine>> = BTreeMap::new();
    for machine in machines {
        let status = machine.status.as_ref();
        let step = status.and_then(|it| it.step.as_ref()).map(MachineStep::as_str);
        let wait = status.and_then(|it| it.waiting_for.as_ref()).map(|it| it.reason.as_str());
        let key = (rests(machine), machine.phase().as_str().to_owned(), step, wait);
        alike.entry(key).or_default().push(machine);
    }
    let mut rows = Vec::new();
    for ((rests, ..), group) in &mut alike {
        group.sort_by_key(|machine| machine.name());
        if !*rests && let [first, _, ..] = group.as_slice() {
            rows.push(row_of_many(first, group, now));
            continue;
        }
        rows.extend(group.iter().take(MOST_ALIKE).map(|machine| row(machine, now)));
        let left = group.len().saturating_sub(MOST_ALIKE);
        rows.extend((left > 0).then(|| format!("… and {left} more like these")));
    }
    for (index, row) in rows.iter().enumerate() {
        let (branch, _) = branch(index + 1 == rows.len());
        page.entry(&format!("{stem}{branch}{row}"));
    }
}

fn rests(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    !machine.is_deleting()
        && matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available)
        && status.is_none_or(|status| status.step.is_none() && status.waiting_for.is_none())
}

/// One line for machines with the same trouble: the message of the machine that waits longest, and some names.
fn row_of_many(first: &Machine, all: &[&Machine], now: Timestamp) -> String {
    let wait = |machine: &Machine| machine.status.as_ref().and_then(|it| it.waiting_for.clone());
    let since = |machine: &Machine| wait(machine).and_then(|it| it.since).map(|it| it.0);
    let oldest = all.iter().min_by_key(|it| (since(it).is_none(), since(it)));
    let text = row(oldest.copied().unwrap_or(first), now);
    let (name, text) = text.split_once("  ").unwrap_or_default();
    let same = all
        .iter()
        .all(|it| wait(it).and_then(|it| it.message) == wait(first).and_then(|it| it.message));
    let whose = if same { String::new() } else { format!(", as {name} says") };
    let names: Vec<_> = all.iter().take(MOST_NAMED).map(|it| it.name()).collect();
    let more = match all.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} machines  {text}{whose} ({}{more})", all.len(), names.join(", "))
}

fn row(machine: &Machine, now: Timestamp) -> String {
    let status = machine.status.as_ref();
    let phase = machine.phase();
    let phase = phase.word();
    let step = status.and_then(|it| it.step.as_ref()).map(MachineStep::as_str);
    let step = step.map(|step| format!(", {step}")).unwrap_or_default();
    let wait = status.and_then(|it| it.waiting_for.as_ref());
    let wait = wait.map(|wait| {
        let message = wait.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        let since =
            wait.since.as_ref().map(|since| format!(" for {}", span(now.duration_since(since.0))));
        format!(", waits for {}{message}{}", wait.reason, since.unwrap_or_default())
    });
    let node = machine.node_name().filter(|node| *node != machine.name());
    let node = node.map(|node| format!(", node {node}")).unwrap_or_default();
    let instance = status.and_then(|it| it.instance.as_ref());
    let old = instance.filter(|it| !it.latest_model_applied).map_or("", |_| ", old model");
    format!("{}  {phase}{step}{}{node}{old}", machine.name(), wait.unwrap_or_default())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
