//! The status of a reserve.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use ostler_api::{
    Machine,
    machine_reserve::{MachineReserveStatus, ReserveConditionType as Type},
    names::label,
};

use super::{Decision, Snapshot};
use crate::{set, set::is_active, streak::REPLACEMENTS_FAIL};

/// So many names of Machines are shown.
const MOST_NAMES: usize = 500;

/// Status, reason and message of a condition.
type Said = (bool, &'static str, String);

/// The status after a pass, in which this could not be written.
pub(super) fn status(
    snapshot: &Snapshot,
    decision: &Decision,
    made: &[String],
    refused: Option<&str>,
) -> MachineReserveStatus {
    let Snapshot { reserve, machines, unanswered, given, now, .. } = snapshot;
    let old = reserve.status.clone().unwrap_or_default();
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let said = [
        (Type::Ready, ready(decision, refused)),
        (Type::LimitedByMax, limited(snapshot, decision)),
        (Type::Valid, valid(decision)),
    ];
    let condition = |(type_, (holds, reason, message)): (Type, Said)| {
        let status = if holds { "True" } else { "False" };
        Condition {
            last_transition_time: old.since(&type_, status, Time(*now)),
            type_: type_.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            observed_generation: reserve.metadata.generation,
            message,
        }
    };
    MachineReserveStatus {
        observed_generation: reserve.metadata.generation,
        replicas: count(machines.iter().filter(|it| is_active(it)).count()),
        ready_replicas: count(decision.ready),
        updated_replicas: count(decision.current),
        given: old.given.saturating_add(i64::try_from(*given).unwrap_or(i64::MAX)),
        machines: names(machines, made.iter().chain(unanswered)),
        selector: Some(format!("{}={}", label::RESERVE, reserve.name())),
        replacement_retry: decision.streak.retry.clone(),
        conditions: said.map(condition).to_vec(),
    }
}

/// Machines that sets take first come first, then Machines being made: a Machine is named before a set takes it.
fn names<'a>(machines: &'a [Arc<Machine>], made: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all: Vec<_> = machines.iter().collect();
    all.sort_by_key(|it| {
        let at = it.metadata.creation_timestamp.as_ref().map(|it| it.0);
        (!set::is_ready(it), at, it.name())
    });
    let all = all.into_iter().map(|it| it.name()).chain(made.map(String::as_str));
    let first: BTreeSet<_> = all.take(MOST_NAMES).map(str::to_owned).collect();
    first.into_iter().collect()
}

fn ready(decision: &Decision, refused: Option<&str>) -> Said {
    let wanted = decision.size.map_or(0, |size| size.wanted);
    let numbers = format!("{} of {wanted} machines are ready", decision.ready);
    if let Some((reason, _)) = &decision.broken {
        return (false, reason, "condition Valid says what to change".to_owned());
    }
    if decision.ready >= wanted {
        return (true, "AllReady", numbers);
    }
    if decision.frozen {
        return (
            false,
            "TargetFrozen",
            format!("{numbers}; none is made while the target is frozen"),
        );
    }
    if let Some(text) = refused {
        return (false, "FailedCreate", text.to_owned());
    }
    match decision.streak.message() {
        Some(text) => (false, REPLACEMENTS_FAIL, text),
        None => (false, "MachinesNotReady", numbers),
    }
}

fn limited(snapshot: &Snapshot, decision: &Decision) -> Said {
    let limit = decision.size.and_then(|size| Some((size, size.most?)));
    match limit.filter(|(size, _)| size.wanted < size.asked) {
        Some((size, most)) => {
            let target = &snapshot.reserve.spec.target_ref;
            let text = format!(
                "{} of {} are kept: {} {} wants {}, and may have {most} by the annotation of its autoscaler",
                size.wanted, size.asked, target.kind, target.name, size.replicas
            );
            (true, "TargetMaximum", text)
        }
        None => (false, "NotLimited", String::new()),
    }
}

pub(super) fn valid(decision: &Decision) -> Said {
    match &decision.broken {
        Some((reason, text)) => (false, reason, text.clone()),
        None => (true, "Valid", String::new()),
    }
}
