//! Conditions of a MachineDeployment. Autoscalers and health checks read types and reasons literally.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::machine_deployment::{
    MachineDeploymentCondition as Condition, MachineDeploymentConditionType as Type,
};

/// Reasons.
pub mod reason {
    /// Enough Machines are available.
    pub const ENOUGH: &str = "MinimumReplicasAvailable";
    /// Too few Machines are available.
    pub const TOO_FEW: &str = "MinimumReplicasUnavailable";
    /// A set was created for the template.
    pub const CREATED: &str = "NewMachineSetCreated";
    /// There was a set for the template.
    pub const FOUND: &str = "FoundNewMachineSet";
    /// The rollout gets on.
    pub const UPDATED: &str = "MachineSetUpdated";
    /// The rollout is over.
    pub const COMPLETE: &str = "NewMachineSetAvailable";
    /// The rollout made no progress in time.
    pub const DEADLINE: &str = "ProgressDeadlineExceeded";
    /// The set for the template cannot be created.
    pub const CREATE_ERROR: &str = "MachineSetCreateError";
    /// The user paused the deployment.
    pub const PAUSED: &str = "DeploymentPaused";
    /// The user resumed the deployment.
    pub const RESUMED: &str = "DeploymentResumed";
    /// Half of the Machines are unhealthy, or more. Ours.
    pub const HALF_UNHEALTHY: &str = "HalfUnhealthy";
    /// The spec is refused. Ours.
    pub const INVALID: &str = "ValidationFailed";
}

/// A condition of that type.
pub fn find<'a>(conditions: &'a [Condition], type_: &Type) -> Option<&'a Condition> {
    conditions.iter().find(|one| one.type_ == *type_)
}

/// The reason of a condition; empty if there is none.
pub fn reason_of<'a>(conditions: &'a [Condition], type_: &Type) -> &'a str {
    find(conditions, type_).and_then(|one| one.reason.as_deref()).unwrap_or_default()
}

/// Sets a condition, unless status and reason are so already. The transition time changes with the status.
pub(super) fn set(
    conditions: &mut Vec<Condition>,
    (type_, status, reason): (Type, &str, &str),
    message: String,
    now: Timestamp,
) {
    let old = find(conditions, &type_);
    if old.is_some_and(|old| old.status == status && old.reason.as_deref() == Some(reason)) {
        return;
    }
    refresh(conditions, (type_, status, reason), message, now);
}

/// As [`set`], and its update time moves in any case.
pub(super) fn refresh(
    conditions: &mut Vec<Condition>,
    (type_, status, reason): (Type, &str, &str),
    message: String,
    now: Timestamp,
) {
    let old = find(conditions, &type_).filter(|old| old.status == status);
    let since = old.and_then(|old| old.last_transition_time.clone());
    let new = Condition {
        status: status.to_owned(),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        reason: Some(reason.to_owned()),
        message: Some(message),
        type_,
    };
    match conditions.iter_mut().find(|one| one.type_ == new.type_) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Between the message of a condition and the hindrance.
const HINDERED: &str = " Blocked: ";

/// Shows in the message of a condition the hindrance, or removes it. The times of the condition stay.
pub(super) fn hinder(conditions: &mut [Condition], type_: &Type, by: Option<&str>) {
    say(conditions, type_, |message| {
        let own = message.split_once(HINDERED).map_or(message, |(own, _)| own);
        by.map_or_else(|| own.to_owned(), |by| format!("{own}{HINDERED}{by}"))
    });
}

/// Changes the message of a condition. The times of the condition stay.
pub(super) fn say(
    conditions: &mut [Condition],
    type_: &Type,
    message: impl FnOnce(&str) -> String,
) {
    if let Some(shown) = conditions.iter_mut().find(|one| one.type_ == *type_) {
        shown.message = Some(message(shown.message.as_deref().unwrap_or_default()));
    }
}

/// The hindrance of the rollout, as shown in condition Progressing for people.
pub fn hindrance(conditions: &[Condition]) -> Option<&str> {
    let message = find(conditions, &Type::Progressing)?.message.as_deref()?;
    message.split_once(HINDERED).map(|(_, by)| by)
}

/// Takes a condition away.
pub(super) fn remove(conditions: &mut Vec<Condition>, type_: &Type) {
    conditions.retain(|one| one.type_ != *type_);
}
