//! The status of a MachineDeployment: sums over its sets, and whether its rollout gets on.

use std::time::Duration;

use jiff::Timestamp;
use ostler_api::machine_deployment::{
    MachineDeploymentConditionType as Type, MachineDeploymentStatus as Status,
};
use ostler_api::machine_set::{MachineSetConditionType, MachineSetStatus};
use ostler_api::names::label;
use ostler_api::{MachineDeployment, MachineSet};

use serde_json::{Value, json};

use super::conditions::{self, find, reason, reason_of};
use super::fenceposts;
use crate::difference::merge_patch;
use crate::selector;
use crate::time::after;

/// The sets of a deployment, oldest first, and which of them has the current template.
#[derive(Debug, Clone, Copy)]
pub struct Sets<'a> {
    /// All of them.
    pub all: &'a [&'a MachineSet],
    /// The new one.
    pub new: Option<&'a MachineSet>,
}

impl Sets<'_> {
    fn sum(&self, of: impl Fn(&MachineSetStatus) -> i32) -> i32 {
        self.all.iter().filter_map(|set| set.status.as_ref()).map(of).fold(0, i32::saturating_add)
    }
}

/// Counts, and the conditions that follow from counts alone.
pub fn count(deployment: &MachineDeployment, sets: Sets<'_>, now: Timestamp) -> Status {
    let old = deployment.status.clone().unwrap_or_default();
    let available = sets.sum(|status| status.available_replicas);
    let wanted: i32 = sets.all.iter().map(|set| set.spec.replicas()).fold(0, i32::saturating_add);
    let new = sets.new.and_then(|set| set.status.as_ref());
    let failed = sets.all.iter().filter_map(|set| set.status.as_ref()?.failed_machines.clone());
    let failed: Vec<_> = failed.flatten().collect();
    let mut status = Status {
        observed_generation: deployment.metadata.generation,
        replicas: sets.sum(|status| status.replicas),
        updated_replicas: new.map_or(0, |status| status.replicas),
        ready_replicas: sets.sum(|status| status.ready_replicas),
        available_replicas: available,
        preserved_failed_replicas: sets.sum(|status| status.preserved_failed_replicas),
        unavailable_replicas: wanted.saturating_sub(available).max(0),
        conditions: old.conditions,
        collision_count: old.collision_count,
        failed_machines: (!failed.is_empty()).then_some(failed),
        selector: deployment.spec.selector.as_ref().map(selector::text),
    };
    // The deployment is not refused, or it would not be counted.
    conditions::remove(&mut status.conditions, &Type::Valid);
    show_availability(deployment, &mut status, now);
    show_failure(sets, &mut status, now);
    status
}

fn show_availability(deployment: &MachineDeployment, status: &mut Status, now: Timestamp) {
    let posts = fenceposts::of(&deployment.spec);
    let least = (deployment.spec.replicas() - posts.unavailable)
        .saturating_sub(status.preserved_failed_replicas);
    let enough = status.available_replicas >= least.max(0);
    let (value, reason, message) = if enough {
        ("True", reason::ENOUGH, "Deployment has minimum availability.")
    } else {
        ("False", reason::TOO_FEW, "Deployment does not have minimum availability.")
    };
    let what = (Type::Available, value, reason);
    conditions::set(&mut status.conditions, what, message.to_owned(), now);
}

/// The failure of the new set, or else the first failure of the others.
fn show_failure(sets: Sets<'_>, status: &mut Status, now: Timestamp) {
    let failure = |set: &MachineSet| {
        let all = &set.status.as_ref()?.conditions;
        all.iter().find(|one| one.type_ == MachineSetConditionType::ReplicaFailure).cloned()
    };
    let first = || sets.all.iter().find_map(|set| failure(set));
    match sets.new.and_then(failure).or_else(first) {
        None => conditions::remove(&mut status.conditions, &Type::ReplicaFailure),
        Some(failure) => {
            let message = failure.message.unwrap_or_default();
            let shown = find(&status.conditions, &Type::ReplicaFailure);
            let same = shown.is_some_and(|one| one.message.as_deref() == Some(&message));
            let reason = failure.reason.unwrap_or_default();
            let what = (Type::ReplicaFailure, failure.status.as_str(), reason.as_str());
            if same {
                conditions::set(&mut status.conditions, what, message, now);
            } else {
                conditions::refresh(&mut status.conditions, what, message, now);
            }
        }
    }
}

/// The merge patch of the status; `None`: it is so already.
pub fn patch(deployment: &MachineDeployment, status: &Status) -> Option<Value> {
    let old = deployment.status.as_ref().map_or(Value::Null, |old| json!(old));
    merge_patch(&old, &json!(status))
}

/// The set for the template exists now.
pub fn created(status: &mut Status, set: &str, now: Timestamp) {
    let message = format!("Created new machine set \"{set}\"");
    let what = (Type::Progressing, "True", reason::CREATED);
    conditions::refresh(&mut status.conditions, what, message, now);
}

/// The set for the template cannot be created, for this reason now. However often that is tried, the deadline counts from the
/// first time.
pub fn creation_failed(status: &mut Status, why: String, now: Timestamp) {
    if reason_of(&status.conditions, &Type::Progressing) == reason::DEADLINE {
        return conditions::hinder(&mut status.conditions, &Type::Progressing, Some(&why));
    }
    let what = (Type::Progressing, "False", reason::CREATE_ERROR);
    conditions::set(&mut status.conditions, what, why.clone(), now);
    conditions::say(&mut status.conditions, &Type::Progressing, |_| why);
}

/// The name of the template's set is taken: the next attempt has another name.
pub fn name_is_taken(status: &mut Status) {
    let count = status.collision_count.unwrap_or_default();
    status.collision_count = Some(count.saturating_add(1));
}

/// Whether nothing is left to do.
pub fn is_complete(deployment: &MachineDeployment, status: &Status) -> bool {
    let wanted = deployment.spec.replicas();
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|it| *it == wanted)
        && deployment.metadata.generation == status.observed_generation
}

/// Says how the rollout goes. Returns when the deadline passes.
pub fn show_progress(
    deployment: &MachineDeployment,
    sets: Sets<'_>,
    status: &mut Status,
    now: Timestamp,
) -> Option<Timestamp> {
    let name = sets.new.map(MachineSet::name).unwrap_or_default();
    let is_over = reason_of(&status.conditions, &Type::Progressing) == reason::COMPLETE;
    // A deployment of none is complete only with its set.
    if is_complete(deployment, status) && sets.new.is_some() {
        let message = format!("Machine set \"{name}\" has successfully progressed.");
        let what = (Type::Progressing, "True", reason::COMPLETE);
        conditions::set(&mut status.conditions, what, message, now);
        return None;
    }
    if is_over && status.updated_replicas == status.replicas {
        // The deployment is scaled, or a machine failed: no rollout.
        return None;
    }
    if is_over {
        let message = format!("Found new machine set \"{name}\"");
        let what = (Type::Progressing, "True", reason::FOUND);
        conditions::refresh(&mut status.conditions, what, message, now);
    } else if advances(deployment.status.as_ref(), status) {
        let message = format!("Machine set \"{name}\" is progressing.");
        let what = (Type::Progressing, "True", reason::UPDATED);
        conditions::refresh(&mut status.conditions, what, message, now);
    }
    check_deadline(deployment, sets, status, now)
}

fn advances(old: Option<&Status>, new: &Status) -> bool {
    let none = Status::default();
    let old = old.unwrap_or(&none);
    new.updated_replicas > old.updated_replicas
        || new.replicas.saturating_sub(new.updated_replicas)
            < old.replicas.saturating_sub(old.updated_replicas)
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

/// Returns when the deadline passes. While it is frozen it cannot get on, and the time does not count.
fn check_deadline(
    deployment: &MachineDeployment,
    sets: Sets<'_>,
    status: &mut Status,
    now: Timestamp,
) -> Option<Timestamp> {
    let limit = u64::try_from(deployment.spec.progress_deadline_seconds?).ok()?;
    let condition = find(&status.conditions, &Type::Progressing)?;
    if condition.reason.as_deref() == Some(reason::DEADLINE) {
        return None;
    }
    let due = after(condition.last_update_time.as_ref()?.0, Duration::from_secs(limit));
    if now < due {
        return Some(due);
    }
    let is_frozen = deployment.label(label::FREEZE).is_some()
        || sets.all.iter().any(|set| set.label(label::FREEZE).is_some());
    let name = sets.new.map(MachineSet::name).unwrap_or_default();
    if is_frozen {
        let same = condition.clone();
        let why = same.reason.unwrap_or_default();
        let what = (Type::Progressing, same.status.as_str(), why.as_str());
        conditions::refresh(&mut status.conditions, what, same.message.unwrap_or_default(), now);
        return Some(after(now, Duration::from_secs(limit)));
    }
    let message = format!("Machine set \"{name}\" has timed out progressing.");
    let what = (Type::Progressing, "False", reason::DEADLINE);
    conditions::set(&mut status.conditions, what, message, now);
    None
}

/// Shows whether the deployment is paused.
pub fn show_pause(deployment: &MachineDeployment, status: &mut Status, now: Timestamp) {
    let shown = reason_of(&status.conditions, &Type::Progressing);
    let (why, message) = match (is_paused(deployment), shown) {
        (true, reason::DEADLINE) | (false, _) if shown != reason::PAUSED => return,
        (true, reason::PAUSED) => return,
        (true, _) => (reason::PAUSED, "Deployment is paused"),
        (false, _) => (reason::RESUMED, "Deployment is resumed"),
    };
    let what = (Type::Progressing, "Unknown", why);
    conditions::set(&mut status.conditions, what, message.to_owned(), now);
}

/// Whether rollouts and rollbacks wait.
pub fn is_paused(deployment: &MachineDeployment) -> bool {
    use ostler_api::names::annotation::CLUSTER_API_PAUSED;
    deployment.spec.paused == Some(true) || deployment.annotation(CLUSTER_API_PAUSED).is_some()
}
