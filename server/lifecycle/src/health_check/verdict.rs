//! Whether a Machine is healthy, by one check.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::{
    Machine, MachineHealthCheck,
    machine::{MachineConditionType, MachinePhase},
    machine_health_check::{NodeConditionIs, UnhealthyMark, UnhealthyReason},
    names::annotation,
};

use super::{
    CheckTarget,
    mark::{holds, own_node, own_nodes},
};
use crate::{
    outage::ApiView,
    snapshot::{Observed, TargetView},
    time::after,
};

/// How long a Machine may be without a Node if its check does not say.
const STARTUP: Duration = Duration::from_mins(10);

/// A check's verdict on a Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthVerdict {
    /// The Machine is healthy.
    Healthy,
    /// The Machine is not healthy, and has time left.
    Pending {
        /// Until when; `None`: until something changes.
        until: Option<Timestamp>,
    },
    /// Nothing is known: an API server is away, or was until now, or its Node could not be looked up.
    Unknown {
        /// When to look again, if no event says so.
        until: Option<Timestamp>,
    },
    /// The Machine was given up already, by another rule than this check.
    Failed,
    /// The Machine is to be replaced.
    Unhealthy(UnhealthyMark),
}

impl HealthVerdict {
    /// When the verdict may change without an event.
    pub(super) const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Pending { until } | Self::Unknown { until } => *until,
            Self::Healthy | Self::Failed | Self::Unhealthy(_) => None,
        }
    }
}

/// Judges a Machine.
pub fn verdict(check: &MachineHealthCheck, target: &CheckTarget, now: Timestamp) -> HealthVerdict {
    let machine = target.machine.as_ref();
    if machine.phase() == MachinePhase::Failed {
        return of_failed(check, machine, target);
    }
    match &target.cluster {
        // There is no Node that could say anything.
        TargetView::None => return HealthVerdict::Healthy,
        TargetView::Lacking { .. } => return HealthVerdict::Unknown { until: None },
        TargetView::Watched => {}
    }
    // Another controller updates the Node in place, and reports the result.
    let is_updated = machine.phase() == MachinePhase::InPlaceUpdating;
    if !is_updated && machine.annotation(annotation::REMEDIATE_MACHINE).is_some() {
        let text = format!("a user asked for it by annotation {}", annotation::REMEDIATE_MACHINE);
        return unhealthy(check, UnhealthyReason::HasRemediateAnnotation, None, now, text);
    }
    let settles = target.api.settles_at(now);
    if target.api.down_since.is_some() || settles.is_some() {
        return HealthVerdict::Unknown { until: settles };
    }
    match own_node(machine, &target.node, target.ids) {
        Observed::Unknown => HealthVerdict::Unknown { until: None },
        _ if is_updated => HealthVerdict::Pending { until: None },
        Observed::Absent if has_joined(machine) => {
            unhealthy(check, UnhealthyReason::NodeDeleted, None, now, "its node is gone".to_owned())
        }
        Observed::Absent => without_node(check, machine, &target.api, now),
        // The Machine is deleted because its Node is.
        Observed::Known(node) if node.metadata.deletion_timestamp.is_some() => {
            HealthVerdict::Pending { until: None }
        }
        Observed::Known(_) => own_nodes(machine, &target.node, target.ids)
            .into_iter()
            .map(|node| by_conditions(check, node, &target.api, now))
            .min_by_key(badness)
            .unwrap_or(HealthVerdict::Healthy),
    }
}

/// A Machine that failed for this check stays unhealthy while the check's finding is true.
fn of_failed(check: &MachineHealthCheck, machine: &Machine, target: &CheckTarget) -> HealthVerdict {
    match machine.unhealthy_mark().filter(|mark| mark.check == check.name()) {
        Some(mark) if holds(&mark, machine, &target.node, target.ids) => {
            HealthVerdict::Unhealthy(mark)
        }
        Some(_) if own_node(machine, &target.node, target.ids) == Observed::Unknown => {
            HealthVerdict::Unknown { until: None }
        }
        Some(_) | None => HealthVerdict::Failed,
    }
}

/// Of several Nodes of its instance, a Machine is as healthy as the best.
const fn badness(verdict: &HealthVerdict) -> u8 {
    match verdict {
        HealthVerdict::Healthy => 0,
        HealthVerdict::Pending { .. } | HealthVerdict::Unknown { .. } => 1,
        HealthVerdict::Unhealthy(_) | HealthVerdict::Failed => 2,
    }
}

fn has_joined(machine: &Machine) -> bool {
    use MachinePhase::{InPlaceUpdateFailed, InPlaceUpdateSuccessful, Running, Unknown};
    let phase = machine.phase();
    matches!(phase, Running | Unknown | InPlaceUpdateSuccessful | InPlaceUpdateFailed)
}

/// The time counts from the creation of the Machine or of its instance, whichever is later.
fn without_node(
    check: &MachineHealthCheck,
    machine: &Machine,
    api: &ApiView,
    now: Timestamp,
) -> HealthVerdict {
    let limit = startup_timeout(check).unwrap_or(STARTUP);
    let born = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let Some(since) = born.max(instance_since(machine)).filter(|_| !limit.is_zero()) else {
        return HealthVerdict::Pending { until: None };
    };
    let end = after(after(since, limit), api.lost_to_new(since, now));
    if now < end {
        return HealthVerdict::Pending { until: Some(end) };
    }
    let text = format!("no node has joined for {}", words(limit));
    unhealthy(check, UnhealthyReason::NodeStartupTimeout, None, end, text)
}

fn instance_since(machine: &Machine) -> Option<Timestamp> {
    let mut all = machine.status.iter().flat_map(|status| &status.conditions);
    let created = all.find(|it| it.type_ == MachineConditionType::InstanceCreated.as_str())?;
    created.last_transition_time.as_ref().filter(|_| created.status == "True").map(|time| time.0)
}

/// Any of the conditions makes the Node unhealthy; the condition whose time ended first is
/// reported.
fn by_conditions(
    check: &MachineHealthCheck,
    node: &Node,
    api: &ApiView,
    now: Timestamp,
) -> HealthVerdict {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ends = conditions.flat_map(|found| {
        let rules = check.spec.node_rules();
        let rules = rules.filter(|rule| rule.type_ == found.type_ && rule.status == found.status);
        rules.filter_map(|rule| {
            let since = found.last_transition_time.as_ref()?.0;
            let limit = rule.timeout?;
            Some((after(after(since, limit), api.lost(since, now)), rule, limit))
        })
    });
    let Some((end, rule, limit)) = ends.min_by_key(|(end, ..)| *end) else {
        return HealthVerdict::Healthy;
    };
    if now < end {
        return HealthVerdict::Pending { until: Some(end) };
    }
    let is = NodeConditionIs { type_: rule.type_.to_owned(), status: rule.status.to_owned() };
    let text = format!("{} of its node has been {} for {}", is.type_, is.status, words(limit));
    unhealthy(check, UnhealthyReason::UnhealthyNode, Some(is), end, text)
}

fn unhealthy(
    check: &MachineHealthCheck,
    reason: UnhealthyReason,
    condition: Option<NodeConditionIs>,
    since: Timestamp,
    message: String,
) -> HealthVerdict {
    let check = check.name().to_owned();
    HealthVerdict::Unhealthy(UnhealthyMark {
        check,
        reason,
        condition,
        since: Time(since),
        message,
    })
}

/// `None`: it cannot be read.
pub(super) fn startup_timeout(check: &MachineHealthCheck) -> Option<Duration> {
    check.spec.startup_timeout(STARTUP)
}

fn words(limit: Duration) -> String {
    let seconds = limit.as_secs();
    if seconds > 0 && seconds.is_multiple_of(60) {
        format!("{}m", seconds / 60)
    } else {
        format!("{seconds}s")
    }
}
