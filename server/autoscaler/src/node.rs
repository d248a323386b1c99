//! A Node in Kubernetes' binary form, without the envelope that API servers put around it.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use prost::Message as _;
use std::collections::BTreeMap;

/// The messages.
#[expect(unreachable_pub, reason = "generated code")]
mod wire {
    tonic::include_proto!("node");
}

/// The bytes of a template Node.
pub(crate) fn bytes(node: Node) -> Vec<u8> {
    let Node { metadata, spec, status } = node;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    let system = status.node_info.unwrap_or_default();
    let wire = wire::Node {
        metadata: Some(wire::ObjectMeta {
            name: metadata.name.unwrap_or_default(),
            labels: metadata.labels.into_iter().flatten().collect(),
            annotations: metadata.annotations.into_iter().flatten().collect(),
        }),
        spec: Some(wire::NodeSpec {
            provider_id: spec.provider_id.unwrap_or_default(),
            taints: spec.taints.into_iter().flatten().map(taint).collect(),
        }),
        status: Some(wire::NodeStatus {
            capacity: amounts(status.capacity),
            allocatable: amounts(status.allocatable),
            conditions: status.conditions.into_iter().flatten().map(condition).collect(),
            node_info: Some(wire::NodeSystemInfo {
                operating_system: system.operating_system,
                architecture: system.architecture,
            }),
        }),
    };
    wire.encode_to_vec()
}

fn taint(taint: Taint) -> wire::Taint {
    let Taint { key, value, effect, .. } = taint;
    wire::Taint { key, value: value.unwrap_or_default(), effect }
}

fn condition(condition: NodeCondition) -> wire::NodeCondition {
    let NodeCondition { type_, status, reason, .. } = condition;
    wire::NodeCondition { r#type: type_, status, reason: reason.unwrap_or_default() }
}

fn amounts(
    amounts: Option<BTreeMap<String, Quantity>>,
) -> std::collections::HashMap<String, wire::Quantity> {
    let amounts = amounts.into_iter().flatten();
    amounts.map(|(name, Quantity(string))| (name, wire::Quantity { string })).collect()
}
