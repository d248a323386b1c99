//! The status of a set.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    Machine, MachineSet,
    machine::{LastOperation, MachinePhase, MachineState},
    machine_set::{
        MachineSetCondition, MachineSetConditionType as Type, MachineSetStatus, MachineSummary,
    },
    names::annotation::PRESERVE,
};

use super::{
    Blind, Blocker, Decision,
    count::{is_active, wanted},
    preserve,
};
use crate::{autoscaler::limits::limits, plan::EventReason, selector, streak::REPLACEMENTS_FAIL};

/// Reason of the condition and of the event while another process runs a set.
pub const FOREIGN: &str = EventReason::ForeignController.name();

/// Reason of the condition and of the event while a Machine that may be a set's cannot be read.
pub const UNREADABLE: &str = EventReason::MachineUnreadable.name();

/// The failures of a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// Why a Machine could not be created.
    pub create: Option<String>,
    /// Why a Machine could not be deleted.
    pub delete: Option<String>,
}

/// The status after a pass.
pub fn status(
    set: &MachineSet,
    plan: &Decision,
    failures: &Failures,
    now: Timestamp,
) -> MachineSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let count = |test: &dyn Fn(&Machine) -> bool| {
        let found = plan.claimed.iter().filter(|machine| test(machine)).count();
        i32::try_from(found).unwrap_or(i32::MAX)
    };
    let auto = count(&|it| it.annotation(PRESERVE) == Some(preserve::AUTO));
    let failed = failed_machines(&plan.claimed);
    let mut conditions = old.conditions.clone();
    let (failure, invalid) = (replica_failure(set, plan, failures), invalid(set, plan));
    conditions = with_condition(conditions, Type::ReplicaFailure, failure, now);
    conditions = with_condition(conditions, Type::Valid, invalid, now);
    let mut status = MachineSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: count(&|machine| is_fully_labeled(set, machine)),
        // Machines without Nodes are available: nothing more is to come.
        ready_replicas: count(&is_available),
        available_replicas: count(&is_available),
        preserved_failed_replicas: count(&is_preserved_failed),
        observed_generation: set.metadata.generation,
        conditions,
        last_operation: old.last_operation.clone(),
        failed_machines: (!failed.is_empty()).then_some(failed),
        auto_preserve_failed_machine_count: (auto > 0).then_some(auto),
        replacement_retry: if plan.broken.is_empty() && !set.is_deleting() {
            plan.streak.retry.clone()
        } else {
            old.replacement_retry.clone()
        },
        bootstrap_template: plan.template.clone().or_else(|| old.bootstrap_template.clone()),
        selector: match &set.spec.selector {
            Some(selector) if plan.broken.is_empty() => Some(selector::text(selector)),
            Some(_) | None => old.selector.clone(),
        },
    };
    if set.status.as_ref() != Some(&status) {
        let last_update_time = Some(Time(now));
        status.last_operation =
            Some(LastOperation { last_update_time, ..LastOperation::default() });
    }
    status
}

/// Whether a status says more than the stored one.
pub fn is_news(set: &MachineSet, status: &MachineSetStatus) -> bool {
    let mut same = status.clone();
    if let Some(old) = &set.status {
        same.last_operation.clone_from(&old.last_operation);
    }
    set.status.as_ref() != Some(&same)
}

fn is_available(machine: &Machine) -> bool {
    matches!(machine.phase(), MachinePhase::Available | MachinePhase::Running)
}

fn is_preserved_failed(machine: &Machine) -> bool {
    machine.phase() == MachinePhase::Failed && preserve::until(machine).is_some()
}

fn is_fully_labeled(set: &MachineSet, machine: &Machine) -> bool {
    let wanted = set.spec.template.metadata.as_ref().and_then(|it| it.labels.as_ref());
    wanted.into_iter().flatten().all(|(key, value)| machine.label(key) == Some(value))
}

fn failed_machines(claimed: &[Arc<Machine>]) -> Vec<MachineSummary> {
    let summary = |machine: &Arc<Machine>| {
        let last = machine.status.as_ref()?.last_operation.as_ref()?;
        let failed = last.state == Some(MachineState::Failed) && !is_preserved_failed(machine);
        failed.then(|| MachineSummary {
            name: machine.metadata.name.clone(),
            provider_id: machine.provider_id().map(ToString::to_string),
            last_operation: Some(last.clone()),
            owner_ref: crate::owner::controller(&machine.metadata).map(|owner| owner.name.clone()),
        })
    };
    let mut all: Vec<_> = claimed.iter().filter_map(summary).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// The change of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    /// The condition stays unchanged.
    Keep,
    /// The condition is removed.
    Drop,
    /// Status, reason and message of the condition.
    Set(&'static str, &'static str, String),
}

/// The failed action. The condition stays while the set still lacks Machines and nothing was tried, and goes once there
/// are as many as wanted.
fn replica_failure(set: &MachineSet, plan: &Decision, failures: &Failures) -> Say {
    if let Some(Blocker::Foreign(foreign)) = &plan.blocker {
        return Say::Set("True", FOREIGN, foreign.message());
    }
    if let Some(Blocker::Blind(Blind::Unreadable(broken))) = &plan.blocker {
        let text = format!(
            "this Machine may belong to the set; no Machines are created until it is fixed or deleted: {broken}"
        );
        return Say::Set("True", UNREADABLE, text);
    }
    if let Some(text) = &failures.create {
        return Say::Set("True", "FailedCreate", text.clone());
    }
    if let Some(text) = &failures.delete {
        return Say::Set("True", "FailedDelete", text.clone());
    }
    if let Some(Blocker::LabelDrift(drifted)) = plan.blocker {
        let text = format!(
            "{drifted} released Machines no longer match spec.selector; creation stops until they match again or are \
             deleted"
        );
        return Say::Set("True", "FailedCreate", text);
    }
    if let Some(text) = plan.streak.message() {
        return Say::Set("True", REPLACEMENTS_FAIL, text);
    }
    let active = plan.claimed.iter().filter(|machine| is_active(machine)).count();
    let untried = plan.create == 0
        && plan.take.is_empty()
        && plan.repeat.is_empty()
        && plan.delete.is_empty();
    if untried && active != wanted(set) { Say::Keep } else { Say::Drop }
}

fn invalid(set: &MachineSet, plan: &Decision) -> Say {
    if !plan.broken.is_empty() {
        return Say::Set("False", "ValidationFailed", plan.broken.join("; "));
    }
    // A deployment sets the annotations of its sets, and no autoscaler reads them there.
    let wrong = || limits(&set.metadata).err().filter(|_| is_alone(set));
    wrong().map_or(Say::Drop, |why| Say::Set("False", EventReason::AnnotationInvalid.name(), why))
}

/// Whether no deployment has it.
pub(super) fn is_alone(set: &MachineSet) -> bool {
    crate::owner::controller(&set.metadata).is_none()
}

/// Changes one condition. All others stay: the freeze is written by another controller.
pub fn with_condition(
    mut all: Vec<MachineSetCondition>,
    type_: Type,
    say: Say,
    now: Timestamp,
) -> Vec<MachineSetCondition> {
    if say == Say::Keep {
        return all;
    }
    let at = all.iter().position(|condition| condition.type_ == type_);
    let before = at.map(|at| all.remove(at));
    if let Say::Set(status, reason, message) = say {
        let same = before.as_ref().filter(|before| before.status == status);
        let since = same.and_then(|before| before.last_transition_time.clone());
        let condition = MachineSetCondition {
            type_,
            status: status.to_owned(),
            last_transition_time: Some(since.unwrap_or(Time(now))),
            reason: Some(reason.to_owned()),
            message: Some(message),
        };
        all.insert(at.unwrap_or(all.len()), condition);
    }
    all
}
