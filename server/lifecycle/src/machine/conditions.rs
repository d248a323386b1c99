//! `status.conditions`: the Node's and ours in one list.

use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::machine::{MachineConditionType, MachineStatus};

use super::pass::Pass;
use crate::plan::EventReason;

/// Sets one of ours.
pub(crate) fn set(
    pass: &mut Pass<'_>,
    type_: &MachineConditionType,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let now = pass.now();
    set_at(&mut pass.status, &now, type_, holds, reason, message);
}

/// Sets one of ours that says what is wrong with an input, and records an event when that begins;
/// `None`: nothing is wrong, and the condition goes.
pub(crate) fn set_complaint(
    pass: &mut Pass<'_>,
    type_: &MachineConditionType,
    reason: &str,
    event: EventReason,
    complaint: Option<String>,
) {
    let Some(text) = complaint else { return remove(&mut pass.status, type_) };
    let known = held_since(&pass.status, type_).is_some();
    set(pass, type_, true, reason, &text);
    if !known {
        pass.effects.event(true, event, text);
    }
}

/// The transition time is kept while the status stays the same.
fn set_at(
    status: &mut MachineStatus,
    now: &Time,
    type_: &MachineConditionType,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let value = if holds { "True" } else { "False" };
    let old = status.conditions.iter_mut().find(|condition| condition.type_ == type_.as_str());
    let transition = old
        .as_ref()
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
    match old {
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
        set_at(&mut status, &now, &MachineConditionType::Drained, true, "Done", "");
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
        set_at(&mut status, &early, &type_, false, "Unavailable", "one");
        set_at(&mut status, &late, &type_, false, "Internal", "two");
        assert_eq!(status.conditions[0].last_transition_time, Some(early));
        set_at(&mut status, &late, &type_, true, "Created", "");
        assert_eq!(status.conditions[0].last_transition_time, Some(late));
    }

    #[test]
    fn each_condition_is_set_in_one_file() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machine");
        let mut files = vec![folder];
        let mut owners = std::collections::BTreeMap::new();
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            if !["set(", "set_complaint(", "remove("]
                .iter()
                .any(|it| text.contains(&format!("conditions::{it}")))
            {
                continue;
            }
            for word in text.split("MachineConditionType::").skip(1) {
                let type_ =
                    word.split(|letter: char| !letter.is_alphanumeric()).next().unwrap().to_owned();
                let owner = owners.entry(type_).or_insert_with(|| path.clone());
                assert_eq!(*owner, path, "{word:.30}");
            }
        }
        assert_eq!(owners.len(), 9, "{owners:?}");
    }
}
