//! The status of a check, and what people are to know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use ostler_api::{
    MachineHealthCheck,
    machine_health_check::{HealthCheckConditionType as Type, MachineHealthCheckStatus},
};

use super::{
    Decision, Judged, Snapshot,
    limit::{Counts, Gate},
};
use crate::plan::{Event, EventAction, EventReason};

/// So many names of targets are shown.
const MOST_TARGETS: usize = 500;
/// So many names are in a message.
const MOST_NAMES: usize = 10;

/// Reason of condition `RemediationAllowed` while unhealthy Machines are held.
const TOO_MANY: &str = "TooManyUnhealthy";
/// The same where `unhealthyRange` wants more of them.
const TOO_FEW: &str = "TooFewUnhealthy";

/// The content of one condition.
struct Said {
    type_: Type,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// The findings of a pass.
pub(super) struct Found<'a> {
    pub(super) check: &'a MachineHealthCheck,
    pub(super) judged: &'a [Judged<'a>],
    pub(super) counts: Counts,
    pub(super) gate: Gate,
    /// The rules that the spec breaks.
    pub(super) broken: &'a [String],
}

pub(super) fn fill(plan: &mut Decision, snap: &Snapshot, found: &Found<'_>) {
    let Found { check, judged, counts, gate, broken } = found;
    let old = check.status.clone().unwrap_or_default();
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let said = [allowed(gate, *counts, judged), replaceable(judged), valid(broken)];
    plan.news = news(&old, &said);
    let names = judged.iter().map(|it| it.target.machine.name().to_owned());
    plan.status = Some(MachineHealthCheckStatus {
        observed_generation: check.metadata.generation,
        expected_machines: count(counts.expected),
        current_healthy: count(counts.healthy),
        remediations_allowed: match gate {
            Gate::Open(left) => count(*left),
            Gate::Outside { .. } | Gate::Paused | Gate::Refused => 0,
        },
        targets: names.take(MOST_TARGETS).collect(),
        conditions: said.into_iter().map(|one| condition(&old, one, check, snap)).collect(),
    });
}

fn allowed(gate: &Gate, counts: Counts, judged: &[Judged<'_>]) -> Said {
    let (holds, reason, message) = match gate {
        Gate::Open(_) => (true, "RemediationAllowed", String::new()),
        Gate::Outside { allowed: (least, most) } => {
            let waits = judged.iter().any(|it| it.is_due() && it.has_owner());
            let reason = match waits {
                true if counts.unhealthy() < *least => TOO_FEW,
                true => TOO_MANY,
                false => "NoneIsDue",
            };
            let allowed = match least {
                0 => format!("at most {most}"),
                least => format!("{least} to {most}"),
            };
            let message = format!(
                "{} of {} machines are unhealthy; remediation is suspended unless {allowed} are",
                counts.unhealthy(),
                counts.expected
            );
            (false, reason, message)
        }
        Gate::Paused => (false, "Paused", "an annotation pauses the check".to_owned()),
        Gate::Refused => {
            (false, "ValidationFailed", "condition Valid says what to change".to_owned())
        }
    };
    Said { type_: Type::RemediationAllowed, holds, reason, message }
}

fn replaceable(judged: &[Judged<'_>]) -> Said {
    let alone = judged.iter().filter(|it| it.is_due() && !it.has_owner());
    let alone: Vec<_> = alone.map(|it| it.target.machine.name()).collect();
    let (reason, message) = match alone.len() {
        0 => ("AllReplaceable", String::new()),
        count => {
            let more = count.saturating_sub(MOST_NAMES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown = alone.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
            let text = format!(
                "unhealthy, and not replaced, since no set or pool controls them: {shown}{more}"
            );
            ("NoController", text)
        }
    };
    Said { type_: Type::Replaceable, holds: alone.is_empty(), reason, message }
}

fn valid(broken: &[String]) -> Said {
    let reason = if broken.is_empty() { "Valid" } else { "ValidationFailed" };
    Said { type_: Type::Valid, holds: broken.is_empty(), reason, message: broken.join("; ") }
}

/// Recorded once: a condition that is false for a new reason.
fn news(old: &MachineHealthCheckStatus, said: &[Said]) -> Vec<Event> {
    let is_new = |one: &&Said| {
        let before = old.conditions.iter().find(|it| it.type_ == one.type_.as_str());
        let same = before.is_some_and(|it| {
            // The numbers of the first condition change with every machine.
            let counts = one.type_ == Type::RemediationAllowed;
            it.status == "False" && it.reason == one.reason && (counts || it.message == one.message)
        });
        !one.holds && !same
    };
    let told = said.iter().filter(is_new).filter_map(|one| {
        let reason = match one.type_ {
            Type::RemediationAllowed if [TOO_MANY, TOO_FEW].contains(&one.reason) => {
                EventReason::RemediationRestricted
            }
            Type::RemediationAllowed | Type::Other(_) => return None,
            Type::Replaceable => EventReason::NoController,
            Type::Valid => EventReason::ValidationFailed,
        };
        Some(Event::warning(reason, one.message.clone()).doing(EventAction::Check))
    });
    told.collect()
}

fn condition(
    old: &MachineHealthCheckStatus,
    said: Said,
    check: &MachineHealthCheck,
    snap: &Snapshot,
) -> Condition {
    let status = if said.holds { "True" } else { "False" };
    let before = old.conditions.iter().find(|it| it.type_ == said.type_.as_str());
    let since = before.filter(|it| it.status == status);
    Condition {
        type_: said.type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: said.reason.to_owned(),
        message: said.message,
        observed_generation: check.metadata.generation,
        last_transition_time: since.map_or(Time(snap.now), |it| it.last_transition_time.clone()),
    }
}
