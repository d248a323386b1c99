//! Decides which changes of a Node matter to the Machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Whether two states of a Node differ in more than the heartbeats of its kubelet.
pub(crate) fn differs(old: &Node, new: &Node) -> bool {
    let meta = (&old.metadata, &new.metadata);
    meta.0.uid != meta.1.uid
        || meta.0.labels != meta.1.labels
        || meta.0.annotations != meta.1.annotations
        || meta.0.finalizers != meta.1.finalizers
        || meta.0.deletion_timestamp != meta.1.deletion_timestamp
        || old.spec != new.spec
        || conditions(old) != conditions(new)
        || volumes(old) != volumes(new)
        || capacity(old) != capacity(new)
        || version(old) != version(new)
}

fn capacity(node: &Node) -> Option<&BTreeMap<String, Quantity>> {
    node.status.as_ref().and_then(|status| status.capacity.as_ref())
}

fn conditions(node: &Node) -> Vec<(&str, &str, Option<&str>)> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_deref())).collect()
}

fn volumes(node: &Node) -> Vec<&str> {
    let volumes = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    volumes.map(|volume| volume.name.as_str()).collect()
}

fn version(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.kubelet_version.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(conditions: &Value, taints: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "n", "resourceVersion": "1" },
            "spec": { "taints": taints },
            "status": { "conditions": conditions }
        }))
        .unwrap()
    }

    #[test]
    fn a_heartbeat_is_no_difference_and_everything_else_is() {
        let ready = |status: &str, beat: &str| {
            json!([{
                "type": "Ready", "status": status, "reason": "r", "lastHeartbeatTime": beat
            }])
        };
        let (none, taint) = (json!([]), json!([{ "key": "k", "effect": "NoSchedule" }]));
        let before = node(&ready("True", "2026-01-01T00:00:00Z"), &none);
        let beat = node(&ready("True", "2026-01-01T00:05:00Z"), &none);
        assert!(!differs(&before, &beat));
        assert!(differs(&before, &node(&ready("False", "2026-01-01T00:00:00Z"), &none)));
        assert!(differs(&before, &node(&ready("True", "2026-01-01T00:00:00Z"), &taint)));
    }
}
