//! `status.conditions`: the Node's and ours in one list.

use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::machine::{MachineConditionType, MachineStatus};

/// Sets one of ours. The transition time is kept while the status stays the same.
pub(crate) fn set(
    status: &mut MachineStatus,
    now: &Time,
    type_: &MachineConditionType,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let value = if holds { "True" } else { "False" };
    let old = status.conditions.iter().position(|condition| condition.type_ == type_.as_str());
    let transition = old
        .and_then(|at| status.conditions.get(at))
        .filter(|condition| condition.status == value)
        .and_then(|condition| condition.last_transition_time.clone())
        .unwrap_or_else(|| now.clone());
    let new = NodeCondition {
        type_: type_.as_str().to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()).filter(|text| !text.is_empty()),
        last_transition_time: Some(transition),
        last_heartbeat_time: None,
    };
    match old.and_then(|at| status.conditions.get_mut(at)) {
        Some(slot) => *slot = new,
        None => status.conditions.push(new),
    }
}

/// Since when one of ours holds; `None`: it does not.
pub(crate) fn held_since(
    status: &MachineStatus,
    type_: &MachineConditionType,
) -> Option<jiff::Timestamp> {
    let mut all = status.conditions.iter();
    let found = all.find(|condition| condition.type_ == type_.as_str())?;
    found.last_transition_time.as_ref().filter(|_| found.status == "True").map(|time| time.0)
}

/// The reason of one of ours, if it is there.
pub(crate) fn reason<'a>(
    status: &'a MachineStatus,
    type_: &MachineConditionType,
) -> Option<&'a str> {
    let mut all = status.conditions.iter();
    all.find(|condition| condition.type_ == type_.as_str())?.reason.as_deref()
}

/// Removes one of ours.
pub(crate) fn remove(status: &mut MachineStatus, type_: &MachineConditionType) {
    status.conditions.retain(|condition| condition.type_ != type_.as_str());
}

/// Whether a Node was ever seen whose conditions were taken over.
pub(crate) fn has_any_of_a_node(status: &MachineStatus) -> bool {
    status.conditions.iter().any(|one| !MachineConditionType::is_ours(&one.type_))
}

/// Takes over the conditions of the Node. A heartbeat alone is no change, so that it does not cost
/// a write.
pub(crate) fn copy_from_node(status: &mut MachineStatus, node: &[NodeCondition]) {
    let theirs = |condition: &&NodeCondition| !MachineConditionType::is_ours(&condition.type_);
    let old: Vec<_> = status.conditions.iter().filter(theirs).collect();
    let new: Vec<_> = node.iter().filter(theirs).collect();
    let same = old.len() == new.len()
        && old.iter().zip(&new).all(|(old, new)| {
            old.type_ == new.type_ && old.status == new.status && old.reason == new.reason
        });
    if same {
        return;
    }
    let ours = status.conditions.iter().filter(|condition| !theirs(condition));
    status.conditions = new.into_iter().chain(ours).cloned().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(status: &str, beat: i64) -> Vec<NodeCondition> {
        vec![NodeCondition {
            type_: "Ready".into(),
            status: status.into(),
            last_heartbeat_time: Some(Time(jiff::Timestamp::from_second(beat).unwrap())),
            ..NodeCondition::default()
        }]
    }

    #[test]
    fn the_conditions_of_the_node_never_push_ours_out() {
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        let mut status = MachineStatus::default();
        set(&mut status, &now, &MachineConditionType::Drained, true, "Done", "");
        copy_from_node(&mut status, &node("True", 1));
        let types: Vec<_> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Drained"]);
        copy_from_node(&mut status, &[]);
        assert_eq!(status.conditions.len(), 1);
    }

    #[test]
    fn a_heartbeat_alone_changes_nothing() {
        let mut status = MachineStatus::default();
        copy_from_node(&mut status, &node("True", 1));
        let before = status.clone();
        copy_from_node(&mut status, &node("True", 2));
        assert_eq!(status, before);
        copy_from_node(&mut status, &node("False", 3));
        assert_ne!(status, before);
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_does() {
        let early = Time(jiff::Timestamp::UNIX_EPOCH);
        let late = Time(jiff::Timestamp::from_second(60).unwrap());
        let mut status = MachineStatus::default();
        let type_ = MachineConditionType::InstanceCreated;
        set(&mut status, &early, &type_, false, "Unavailable", "one");
        set(&mut status, &late, &type_, false, "Internal", "two");
        assert_eq!(status.conditions[0].last_transition_time, Some(early));
        set(&mut status, &late, &type_, true, "Created", "");
        assert_eq!(status.conditions[0].last_transition_time, Some(late));
    }
}
