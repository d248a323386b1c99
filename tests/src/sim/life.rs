//! The life of one machine, as its users may see it: a small model beside the product's own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeCondition;
use ostler_api::machine::{DrainProgress, DrainPurpose, Machine, MachinePhase};
use serde_json::Value;

/// The last known state of a machine.
#[derive(Clone, Debug)]
pub struct Life {
    /// Name of the machine.
    pub name: String,
    /// The object as it was written last.
    pub machine: Machine,
}

/// Phases that may follow one another, beside staying the same. Any machine may begin to end.
const FOLLOWS: [(&str, &[&str]); 10] = [
    ("", &["Pending", "Available", "CrashLoopBackOff", "Failed", "Running"]),
    ("CrashLoopBackOff", &["Pending", "Available", "Running", "Failed"]),
    ("Pending", &["Running", "Available", "CrashLoopBackOff", "Failed"]),
    ("Available", &["CrashLoopBackOff", "Failed"]),
    ("Running", &["Unknown", "Failed", "InPlaceUpdating"]),
    // An update in place that failed before is failed still.
    ("Unknown", &["Running", "Failed", "InPlaceUpdateFailed"]),
    ("Failed", &["Running"]),
    ("InPlaceUpdating", &["InPlaceUpdateSuccessful", "InPlaceUpdateFailed", "Failed"]),
    ("InPlaceUpdateSuccessful", &["Running", "Unknown", "Failed"]),
    ("InPlaceUpdateFailed", &["InPlaceUpdateSuccessful", "Running", "Unknown", "Failed"]),
];

/// A change that a client with an older version overwrites. A version after the last external write comes from a client
/// that saw a write of the garbage collector inside the server.
pub fn lost(before: &Machine, sent: &Value) -> Option<String> {
    let number = |version: &str| version.parse::<u64>().ok();
    let from =
        sent.pointer("/metadata/resourceVersion").and_then(Value::as_str).and_then(number)?;
    let last = before.metadata.resource_version.as_deref().and_then(number)?;
    (from < last)
        .then(|| format!("{} was written from version {from} over version {last}", before.name()))
}

/// What is wrong with a machine that became `now` after it was `before`, if anything is. `exists`
/// tells whether there is an instance of this provider id: one that a user deleted by hand may be
/// followed by another one.
pub fn wrong(before: &Machine, now: &Machine, exists: impl Fn(&str) -> bool) -> Option<String> {
    let (from, to) = (before.phase(), now.phase());
    let follows =
        || FOLLOWS.iter().any(|(one, next)| *one == from.as_str() && next.contains(&to.as_str()));
    // A user, or another model, takes back what a pool began.
    let taken_back =
        now.has_pool() && from == MachinePhase::InPlaceUpdating && to == MachinePhase::Running;
    // Its Node came, and it is unhealthy in the same pass, since a check says so already.
    let marked = now.unhealthy_mark().is_some()
        && to == MachinePhase::Unknown
        && [MachinePhase::New, MachinePhase::Pending, MachinePhase::CrashLoopBackOff]
            .contains(&from);
    // An update that was begun goes on in the pass in which the Node is well again, and one that failed begins again for
    // another rollout: its pods have left already.
    let resumed = matches!(from, MachinePhase::Unknown | MachinePhase::InPlaceUpdateFailed)
        && to == MachinePhase::InPlaceUpdating
        && is_ready_and_empty(now);
    let may_follow = || taken_back || marked || resumed || follows();
    if from == MachinePhase::Terminating && to != from {
        return Some(format!("it was Terminating and is {:?}", to.as_str()));
    }
    if to != from && to != MachinePhase::Terminating && !may_follow() {
        return Some(format!("phase {:?} does not follow {:?}", to.as_str(), from.as_str()));
    }
    if to == MachinePhase::Terminating && !now.is_deleting() {
        return Some("it is Terminating and was not deleted".to_owned());
    }
    if before.is_deleting() && !now.is_deleting() {
        return Some("its deletion was taken back".to_owned());
    }
    if before.is_deleting() && !before.has_finalizer() && now.has_finalizer() {
        return Some("it got a finalizer while it was deleted".to_owned());
    }
    match (before.provider_id(), now.provider_id()) {
        (Some(one), Some(other)) if one != other && exists(one.as_str()) => {
            Some(format!("its provider id changed from {one} to {other}"))
        }
        (Some(one), None) if exists(one.as_str()) => {
            Some(format!("its provider id {one} was forgotten"))
        }
        _ => None,
    }
}

/// Whether its Node is ready, and was emptied for an update in place.
fn is_ready_and_empty(machine: &Machine) -> bool {
    let Some(status) = &machine.status else { return false };
    let empty = |it: &DrainProgress| it.finished && it.purpose() == DrainPurpose::InPlaceUpdate;
    let ready = |it: &NodeCondition| it.type_ == "Ready" && it.status == "True";
    status.drain.as_ref().is_some_and(empty) && status.conditions.iter().any(ready)
}

/// Everything that was seen of machines, by UID.
pub type Lives = BTreeMap<String, Life>;

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(phase: &str, provider_id: Option<&str>, deleted: bool) -> Machine {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(serde_json::json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "deletionTimestamp": deleted },
            "spec": { "providerID": provider_id },
            "status": { "currentStatus": { "phase": phase } },
        }))
        .unwrap()
    }

    #[test]
    fn a_life_goes_one_way() {
        let wrong = |before: &Machine, now: &Machine| wrong(before, now, |_| true);
        let good = [("", "Pending"), ("Pending", "Running"), ("Running", "Unknown")];
        for (from, to) in good {
            assert_eq!(wrong(&machine(from, None, false), &machine(to, None, false)), None);
        }
        assert!(
            wrong(&machine("Running", None, false), &machine("Pending", None, false)).is_some()
        );
        let unknown = machine("Unknown", None, false);
        for (ready, finished, is_right) in
            [("True", true, true), ("False", true, false), ("True", false, false)]
        {
            let status = serde_json::json!({
                "currentStatus": { "phase": "InPlaceUpdating" },
                "conditions": [{ "type": "Ready", "status": ready }],
                "drain": { "purpose": "InPlaceUpdate", "finished": finished },
            });
            let mut updating = machine("InPlaceUpdating", None, false);
            updating.status = serde_json::from_value(status).unwrap();
            assert_eq!(wrong(&unknown, &updating).is_none(), is_right, "{ready} {finished}");
        }
        let (dead, alive) = (machine("Terminating", None, true), machine("Running", None, true));
        assert!(wrong(&dead, &alive).is_some());
        let (one, other) = (machine("", Some("a"), false), machine("", Some("b"), false));
        assert!(wrong(&one, &other).is_some());
        assert!(wrong(&one, &machine("", None, false)).is_some());
    }
}
