//! The shape of a future Node of a group, from the class's `nodeTemplate` and the template of the Machines.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubernetesQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::MachineClass;
use ostler_api::machine::MachineSpec;
use ostler_quantity::Quantity;
use serde_json::Value;

type Map = BTreeMap<String, String>;

/// Pods of a Node where the class does not say it, as a kubelet has it.
pub(super) const PODS: &str = "110";
/// The name of graphics cards in classes and Kubernetes.
pub(super) const GPU: &str = "nvidia.com/gpu";

/// Resources that a class may name otherwise than a Node does.
const RESOURCES: [(&str, &str); 3] =
    [("gpu", GPU), ("ephemeral-disk", "ephemeral-storage"), ("maxPods", "pods")];

/// The shape of a Node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeShape {
    /// Resources by their names on Nodes.
    pub capacity: Map,
    /// Labels, including the template's.
    pub labels: Map,
    /// Annotations of the template.
    pub annotations: Map,
    /// Taints of the template.
    pub taints: Vec<Taint>,
}

impl NodeShape {
    /// The shape from the class and the template; `None`: too little to place a pod.
    pub fn of(class: &MachineClass, template: &MachineSpec) -> Option<Self> {
        let node = class.spec.node_template.as_ref()?;
        let mut capacity = capacity(node);
        if !["cpu", "memory"].iter().all(|resource| capacity.contains_key(*resource)) {
            return None;
        }
        capacity.entry("pods".to_owned()).or_insert_with(|| PODS.to_owned());
        let text = |key: &str| node.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
        let architecture = text("architecture").unwrap_or("amd64");
        let usual = [
            ("kubernetes.io/arch", Some(architecture)),
            ("kubernetes.io/os", Some("linux")),
            ("node.kubernetes.io/instance-type", text("instanceType")),
            ("topology.kubernetes.io/region", text("region")),
            ("topology.kubernetes.io/zone", text("zone")),
        ];
        let usual =
            usual.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        let given = template.node_template.clone().unwrap_or_default();
        let metadata = given.metadata.unwrap_or_default();
        Some(Self {
            capacity,
            labels: usual.chain(metadata.labels.unwrap_or_default()).collect(),
            annotations: metadata.annotations.unwrap_or_default(),
            taints: given.spec.and_then(|spec| spec.taints).unwrap_or_default(),
        })
    }

    /// A Node of that name, ready.
    pub fn node(self, name: &str) -> Node {
        let Self { capacity, mut labels, annotations, taints } = self;
        let architecture = labels.get("kubernetes.io/arch").cloned().unwrap_or_default();
        let system = labels.get("kubernetes.io/os").cloned().unwrap_or_default();
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        let capacity: BTreeMap<_, _> = capacity
            .into_iter()
            .map(|(resource, amount)| (resource, KubernetesQuantity(amount)))
            .collect();
        let ready = NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: Some("TemplateNode".to_owned()),
            ..NodeCondition::default()
        };
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec { taints: Some(taints), ..NodeSpec::default() }),
            status: Some(NodeStatus {
                allocatable: Some(capacity.clone()),
                capacity: Some(capacity),
                conditions: Some(vec![ready]),
                node_info: Some(NodeSystemInfo {
                    architecture,
                    operating_system: system,
                    ..NodeSystemInfo::default()
                }),
                ..NodeStatus::default()
            }),
        }
    }
}

/// Real and virtual resources; values that are no quantity are left out, and so are graphics cards on a Node without
/// them.
fn capacity(node: &Value) -> Map {
    let fields =
        ["capacity", "virtualCapacity"].map(|key| node.get(key).and_then(Value::as_object));
    let given = fields.into_iter().flatten().flatten().filter_map(|(resource, amount)| {
        let amount = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        let nanos = Quantity::parse(&amount)?.nanos();
        let known = RESOURCES.iter().find(|(of_class, _)| of_class == resource);
        let resource = known.map_or(resource.as_str(), |(_, of_node)| of_node);
        let counts = nanos > 0 || nanos == 0 && resource != GPU;
        counts.then(|| (resource.to_owned(), amount))
    });
    given.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(node_template: &Value) -> MachineClass {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c" }, "providerSpec": {}, "nodeTemplate": node_template
        }))
        .unwrap()
    }

    #[test]
    fn a_node_has_what_class_and_template_say() {
        let class = class(&json!({
            "capacity": { "cpu": 4, "gpu": "2", "memory": "8Gi", "ephemeral-storage": "50Gi" },
            "virtualCapacity": { "example.com/slots": "3" },
            "instanceType": "large", "region": "r", "zone": "z", "architecture": "arm64"
        }));
        let template = serde_json::from_value(json!({ "nodeTemplate": {
            "metadata": { "labels": { "team": "a", "topology.kubernetes.io/zone": "y" } },
            "spec": { "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] }
        } }))
        .unwrap();
        let node = json!(NodeShape::of(&class, &template).unwrap().node("n"));
        let capacity = json!({
            "cpu": "4", "memory": "8Gi", "ephemeral-storage": "50Gi", "pods": "110",
            "nvidia.com/gpu": "2", "example.com/slots": "3"
        });
        assert_eq!(node["status"]["capacity"], capacity);
        assert_eq!(node["status"]["allocatable"], capacity);
        assert_eq!(node["status"]["nodeInfo"]["architecture"], "arm64");
        let labels = json!({
            "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "n",
            "node.kubernetes.io/instance-type": "large", "topology.kubernetes.io/region": "r",
            "topology.kubernetes.io/zone": "y", "team": "a"
        });
        assert_eq!(node["metadata"]["labels"], labels);
        assert_eq!(node["spec"]["taints"][0]["key"], "k");
    }

    #[test]
    fn a_class_that_does_not_say_what_a_machine_has_gives_no_node() {
        let template = MachineSpec::default();
        let capacities = [json!({}), json!({ "cpu": 4 }), json!({ "cpu": "x", "memory": "1Gi" })];
        for capacity in capacities {
            let given = json!({ "capacity": capacity });
            assert_eq!(NodeShape::of(&class(&given), &template), None, "{capacity}");
        }
        assert_eq!(NodeShape::of(&class(&Value::Null), &template), None);
    }

    #[test]
    fn no_graphics_card_is_no_resource() {
        let given = json!({ "capacity": { "cpu": 1, "memory": "1Gi", "gpu": "0" } });
        let shape = NodeShape::of(&class(&given), &MachineSpec::default()).unwrap();
        assert!(!shape.capacity.contains_key(GPU));
    }
}
