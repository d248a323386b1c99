//! A Machine's marks on its Node: taints and conditions, each part of the single write of a pass.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

use super::{health, pass::Pass};

/// Changes the taints of the Node, together with earlier changes of this pass.
pub(crate) fn edit_taints(pass: &mut Pass<'_>, node: &Node, edit: impl FnOnce(&mut Vec<Taint>)) {
    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let patch = pass.effects.node_patch(node);
    let mut new = patch.taints.clone().unwrap_or_else(|| old.clone());
    edit(&mut new);
    if new != old || patch.taints.is_some() {
        patch.taints = Some(new);
    }
}

/// A taint that nothing new tolerates by accident.
pub(crate) fn no_schedule(key: &str) -> Taint {
    Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

/// An annotation of the Node.
pub(crate) fn annotation_of<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A condition of the Node.
pub(crate) fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    health::conditions(node).iter().find(|one| one.type_ == type_)
}

/// Sets a condition of the Node, unless it is so. The transition time changes with status or
/// reason.
pub(crate) fn set_condition(
    pass: &mut Pass<'_>,
    node: &Node,
    type_: &str,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let status = if holds { "True" } else { "False" };
    let old = condition(node, type_)
        .filter(|old| old.status == status && old.reason.as_deref() == Some(reason));
    if old.is_some_and(|old| old.message.as_deref().unwrap_or_default() == message) {
        return;
    }
    let transition = old.and_then(|old| old.last_transition_time.clone());
    let now = pass.now();
    let conditions = &mut pass.effects.node(node).status.conditions;
    conditions.retain(|one| one.type_ != type_);
    conditions.push(NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(transition.unwrap_or_else(|| now.clone())),
        last_heartbeat_time: Some(now),
    });
}
