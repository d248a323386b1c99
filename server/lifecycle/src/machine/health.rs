//! Whether a Node is healthy.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use ostler_api::{machine::Machine, names};

use crate::settings::Settings;

/// The conditions of a Node.
pub(crate) fn conditions(node: &Node) -> &[NodeCondition] {
    node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// Whether the kubelet has its own credentials: the kubelet reports on the Node, though maybe not readiness. A
/// controller sets `Unknown` in the kubelet's place.
pub(crate) fn is_registered(node: &Node) -> bool {
    conditions(node).iter().any(|it| it.type_ == "Ready" && it.status != "Unknown")
}

/// The complaint against a Node; `None`: healthy. `Ready` must be True, and every condition in the list of the Machine,
/// where it exists, must be exactly False.
pub(crate) fn complaint(node: &Node, machine: &Machine, settings: &Settings) -> Option<String> {
    let conditions = conditions(node);
    let of = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    match of("Ready") {
        None => return Some("the node has no condition Ready".to_owned()),
        Some(ready) if ready.status != "True" => return Some(describe(ready)),
        Some(_) => {}
    }
    watched(machine, settings)
        .into_iter()
        .filter_map(of)
        .find(|condition| condition.status != "False")
        .map(describe)
}

/// The types of conditions in the list of the Machine.
pub(crate) fn watched<'a>(machine: &'a Machine, settings: &'a Settings) -> Vec<&'a str> {
    match machine.spec.node_conditions.as_deref() {
        Some(list) => list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
        None => settings.node_conditions.iter().map(String::as_str).collect(),
    }
}

fn describe(condition: &NodeCondition) -> String {
    let reason = short(condition.reason.as_deref().unwrap_or("no reason given"), WORD_BYTES);
    format!("{} is {} ({reason})", condition.type_, short(&condition.status, WORD_BYTES))
}

/// The longest word of a Node that a Machine repeats, in bytes.
pub(crate) const WORD_BYTES: usize = 256;
/// The longest text.
pub(crate) const TEXT_BYTES: usize = 1 << 10;

/// At most so many bytes, ending between characters: a kubelet may write more than its Machine can hold.
pub(crate) fn short(text: &str, bytes: usize) -> &str {
    text.split_at(text.floor_char_boundary(bytes)).0
}

/// Whether the kubelet has been silent or the root file system broken since before `since`: no
/// kubelet on that Node will end a pod.
pub(crate) fn is_lost(node: &Node, since: Timestamp) -> bool {
    let lasts = |condition: &NodeCondition| {
        condition.last_transition_time.as_ref().is_some_and(|time| time.0 < since)
    };
    conditions(node).iter().any(|condition| match condition.type_.as_str() {
        "Ready" => condition.status != "True" && lasts(condition),
        "ReadonlyFilesystem" => condition.status != "False" && lasts(condition),
        _ => false,
    })
}

/// Whether the Node has a taint.
pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == key)
}

/// Whether our finalizer is on the Node.
pub(crate) fn has_finalizer(node: &Node) -> bool {
    let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|name| name == names::finalizer::NODE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeStatus;

    use super::*;

    fn node(conditions: &[(&str, &str)]) -> Node {
        let condition = |(type_, status): &(&str, &str)| NodeCondition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            ..NodeCondition::default()
        };
        Node {
            status: Some(NodeStatus {
                conditions: Some(conditions.iter().map(condition).collect()),
                ..NodeStatus::default()
            }),
            ..Node::default()
        }
    }

    fn healthy(conditions: &[(&str, &str)]) -> bool {
        complaint(&node(conditions), &Machine::default(), &Settings::default()).is_none()
    }

    #[test]
    fn a_node_is_healthy_when_it_is_ready_and_nothing_watched_is_wrong() {
        assert!(healthy(&[("Ready", "True")]));
        assert!(healthy(&[("Ready", "True"), ("DiskPressure", "False"), ("Odd", "True")]));
        assert!(!healthy(&[]));
        assert!(!healthy(&[("DiskPressure", "False")]));
        assert!(!healthy(&[("Ready", "Unknown")]));
        assert!(!healthy(&[("Ready", "True"), ("DiskPressure", "True")]));
        assert!(!healthy(&[("Ready", "True"), ("KernelDeadlock", "Unknown")]));
    }

    #[test]
    fn the_list_of_the_machine_replaces_the_default_list() {
        let mut machine = Machine::default();
        machine.spec.node_conditions = Some("Odd, Strange".to_owned());
        let settings = Settings::default();
        let bad = node(&[("Ready", "True"), ("Strange", "True")]);
        assert!(complaint(&bad, &machine, &settings).is_some());
        let fine = node(&[("Ready", "True"), ("DiskPressure", "True")]);
        assert_eq!(complaint(&fine, &machine, &settings), None);
    }
}
