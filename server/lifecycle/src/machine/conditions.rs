//! `status.conditions`: the Node's and ours in one list.

use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use ostler_api::machine::{MachineConditionType, MachineStatus};

use super::{
    health::{self, TEXT_BYTES, WORD_BYTES, short},
    pass::Pass,
};
use crate::plan::EventReason;

/// Most conditions of the Node that a Machine shows. No decision reads the shown conditions.
const MOST_OF_A_NODE: usize = 64;
/// Conditions from kubelets, which stay where there is no room for all.
const OF_KUBELETS: [&str; 5] =
    ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

/// Sets a condition of ours.
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

/// Sets a condition of ours about a faulty input, and records an event at its begin; `None`: no fault, and the
/// condition goes.
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

/// Finds a condition of ours.
fn find<'a>(status: &'a MachineStatus, type_: &MachineConditionType) -> Option<&'a NodeCondition> {
    status.conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Since when a condition of ours holds; `None`: it does not hold.
pub(crate) fn held_since(
    status: &MachineStatus,
    type_: &MachineConditionType,
) -> Option<jiff::Timestamp> {
    let found = find(status, type_)?;
    found.last_transition_time.as_ref().filter(|_| found.status == "True").map(|time| time.0)
}

/// The reason of a condition of ours, if present.
pub(crate) fn reason<'a>(
    status: &'a MachineStatus,
    type_: &MachineConditionType,
) -> Option<&'a str> {
    find(status, type_)?.reason.as_deref()
}

/// The message of a condition of ours, if set.
pub(crate) fn message<'a>(
    status: &'a MachineStatus,
    type_: &MachineConditionType,
) -> Option<&'a str> {
    find(status, type_)?.message.as_deref()
}

/// Removes a condition of ours.
pub(crate) fn remove(status: &mut MachineStatus, type_: &MachineConditionType) {
    status.conditions.retain(|condition| condition.type_ != type_.as_str());
}

/// Whether a Node was ever seen whose conditions were taken over.
pub(crate) fn has_any_of_a_node(status: &MachineStatus) -> bool {
    status.conditions.iter().any(|one| !MachineConditionType::is_ours(&one.type_))
}

/// Takes over the conditions of the Node.
pub(crate) fn copy_from_node(pass: &mut Pass<'_>, node: &Node) {
    let watched = health::watched(pass.machine, &pass.snap.settings);
    copy(&mut pass.status, health::conditions(node), &watched);
}

/// Of the Node's, as many as a Machine has room for. A heartbeat alone is no change, so that it does not cost a write.
fn copy(status: &mut MachineStatus, node: &[NodeCondition], watched: &[&str]) {
    let theirs = |condition: &&NodeCondition| !MachineConditionType::is_ours(&condition.type_);
    let old: Vec<_> = status.conditions.iter().filter(theirs).collect();
    // Part of a type or of a status is another one.
    let fits = |one: &&NodeCondition| one.type_.len().max(one.status.len()) <= WORD_BYTES;
    let mut new: Vec<_> = node.iter().filter(theirs).filter(fits).collect();
    if new.len() > MOST_OF_A_NODE {
        let counts = |type_| OF_KUBELETS.contains(&type_) || watched.contains(&type_);
        new.sort_by_key(|one| !counts(one.type_.as_str()));
        new.truncate(MOST_OF_A_NODE);
    }
    let cut = |text: &Option<String>, bytes| text.as_deref().map(|it| short(it, bytes).to_owned());
    let new: Vec<_> = new
        .into_iter()
        .map(|one| NodeCondition {
            type_: one.type_.clone(),
            status: one.status.clone(),
            reason: cut(&one.reason, WORD_BYTES),
            message: cut(&one.message, TEXT_BYTES),
            last_heartbeat_time: one.last_heartbeat_time.clone(),
            last_transition_time: one.last_transition_time.clone(),
        })
        .collect();
    let same = old.len() == new.len()
        && old.iter().zip(&new).all(|(old, new)| {
            old.type_ == new.type_ && old.status == new.status && old.reason == new.reason
        });
    if same {
        return;
    }
    let ours = status.conditions.iter().filter(|condition| !theirs(condition));
    status.conditions = new.into_iter().chain(ours.cloned()).collect();
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
        copy(&mut status, &node("True", 1), &[]);
        let types: Vec<_> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Drained"]);
        copy(&mut status, &[], &[]);
        assert_eq!(status.conditions.len(), 1);
    }

    #[test]
    fn a_heartbeat_alone_changes_nothing() {
        let mut status = MachineStatus::default();
        copy(&mut status, &node("True", 1), &[]);
        let before = status.clone();
        copy(&mut status, &node("True", 2), &[]);
        assert_eq!(status, before);
        copy(&mut status, &node("False", 3), &[]);
        assert_ne!(status, before);
    }

    #[test]
    fn a_node_with_thousands_of_conditions_leaves_room_in_its_machine() {
        let long = "ä".repeat(700);
        let one = |type_: String| NodeCondition {
            type_,
            status: "True".to_owned(),
            reason: Some(long.clone()),
            message: Some(long.clone()),
            ..NodeCondition::default()
        };
        let mut node: Vec<_> = (0..10_000).map(|index| one(format!("Odd{index}"))).collect();
        node.insert(0, one(long.clone()));
        node.extend([one("Watched".to_owned()), one("Ready".to_owned())]);
        let mut status = MachineStatus::default();
        copy(&mut status, &node, &["Watched"]);
        let types: Vec<_> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
        assert_eq!((types.len(), &types[..3]), (64, &["Watched", "Ready", "Odd0"][..]));
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.len() < 100 << 10, "{}", text.len());
        let before = status.clone();
        copy(&mut status, &node, &["Watched"]);
        assert_eq!(status, before);
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
        assert_eq!(owners.len(), 10, "{owners:?}");
    }
}
