//! The provider spec of a machine class: what an instance is made of, and how the simulation plays.

use std::collections::BTreeMap;

use ostler_driver_sdk::{HotSpec, Violation};
use ostler_quantity::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::fault::Fault;

/// Tags that begin so are the driver's own: they carry the identity of the instance.
pub const RESERVED_TAG_PREFIX: &str = "ostler.dev/";

/// `MachineClass.providerSpec` of provider `fake.ostler.dev`.
///
/// The knobs of the simulation (latency, capacity, faults, initialize) are no part of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, HotSpec)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// Region of the instance, part of its provider id. Cannot be changed on a running instance.
    pub region: String,
    /// Image it boots. Cannot be changed on a running instance.
    pub image: String,
    /// Size of the instance. Cannot be changed on a running instance.
    #[serde(default)]
    pub machine_type: String,
    /// Resources that the Node reports. Cannot be changed on a running instance.
    #[serde(default)]
    pub node_capacity: NodeCapacity,
    /// Tags of the resources of an instance. Changed on a running instance by an update.
    #[ostler(hot)]
    #[serde(default)]
    pub tags: Tags,
    /// Whether a new instance needs InitializeMachine.
    #[ostler(hot)]
    #[serde(default)]
    pub initialize: bool,
    /// How long things take.
    #[ostler(hot)]
    #[serde(default)]
    pub latency: Latency,
    /// How many instances there may be.
    #[ostler(hot)]
    #[serde(default)]
    pub capacity: Capacity,
    /// How many calls the cloud takes; without it, all.
    #[ostler(hot)]
    #[serde(default)]
    pub throttle: Option<Throttle>,
    /// How the kubelet behaves. Changed on a running instance by an update.
    #[ostler(hot)]
    #[serde(default)]
    pub kubelet: KubeletSpec,
    /// How groups play.
    #[ostler(hot)]
    #[serde(default)]
    pub groups: Groups,
    /// What goes wrong.
    #[ostler(hot)]
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// Tags of the three resources that make an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tags {
    /// Tags of the virtual machine.
    #[serde(default)]
    pub vm: BTreeMap<String, String>,
    /// Tags of its network interface.
    #[serde(default)]
    pub network: BTreeMap<String, String>,
    /// Tags of its disk.
    #[serde(default)]
    pub disk: BTreeMap<String, String>,
}

/// A part of an instance that carries tags of its own, in the order in which an update goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resource {
    /// The virtual machine.
    Vm,
    /// Its network interface.
    Network,
    /// Its disk.
    Disk,
}

impl Resource {
    /// All, in the order of an update.
    pub const ALL: [Self; 3] = [Self::Vm, Self::Network, Self::Disk];

    /// Where its tags stand in the provider spec.
    pub fn path(self) -> &'static str {
        match self {
            Self::Vm => "tags.vm",
            Self::Network => "tags.network",
            Self::Disk => "tags.disk",
        }
    }
}

impl Tags {
    /// The tags of one resource.
    pub fn of(&self, resource: Resource) -> &BTreeMap<String, String> {
        match resource {
            Resource::Vm => &self.vm,
            Resource::Network => &self.network,
            Resource::Disk => &self.disk,
        }
    }
}

/// Resources of the Node, as Kubernetes quantities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeCapacity {
    /// CPUs; 4 if left out.
    pub cpu: String,
    /// Memory; 16Gi if left out.
    pub memory: String,
    /// Pods; 110 if left out.
    pub pods: String,
}

impl Default for NodeCapacity {
    fn default() -> Self {
        Self { cpu: "4".to_owned(), memory: "16Gi".to_owned(), pods: "110".to_owned() }
    }
}

/// How long things take; what is left out takes no time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Latency {
    /// Until CreateMachine answers.
    pub create: GoDuration,
    /// From then until the instance runs.
    pub boot: GoDuration,
    /// From then until its kubelet asks to join.
    pub join: GoDuration,
    /// Until InitializeMachine answers.
    pub initialize: GoDuration,
    /// Until UpdateMachine answers.
    pub update: GoDuration,
    /// Until DeleteMachine answers; the instance stops immediately and exists for so long.
    pub delete: GoDuration,
    /// From creation until the instance shows in lists, as in clouds that are eventually consistent.
    pub list: GoDuration,
}

/// How many calls the cloud takes; one more is `RESOURCE_EXHAUSTED` with reason `THROTTLED`, and
/// says when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Throttle {
    /// So many calls, of all machines and classes together.
    pub calls: u32,
    /// In every such time.
    pub per: GoDuration,
}

/// How groups play, beside what holds for all instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Groups {
    /// Where instances are, spread evenly; what the core asks for comes first.
    pub zones: Vec<String>,
    /// Every so many-th instance of a group does not start.
    pub fail_every: Option<u64>,
    /// Every so many-th instance of a group takes longer to boot.
    pub slow_every: Option<u64>,
    /// By so much.
    pub slow_boot: GoDuration,
    /// The cloud takes an instance back when it has run for so long, as of a spot market.
    pub spot_lifetime: Option<GoDuration>,
}

/// How many instances there may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Capacity {
    /// Instances in the region, of all clusters; without it there is no limit. One more is
    /// `RESOURCE_EXHAUSTED`.
    pub max_instances: Option<usize>,
    /// What the refusal says about when to try again.
    pub retry_after: Option<GoDuration>,
}

/// How the simulated kubelet of an instance behaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletSpec {
    /// Whether and how it joins.
    pub join: Join,
    /// The Node spells its provider id in capitals.
    pub capitals: bool,
    /// The Node is NotReady from this time after its registration.
    pub not_ready_after: Option<GoDuration>,
    /// It says Ready again when this long has passed since it said NotReady.
    pub ready_again_after: Option<GoDuration>,
    /// How long pods take to end; never longer than their grace. Left out: the whole grace.
    pub pod_shutdown: Option<GoDuration>,
    /// How pods end after their deletion.
    pub pods: PodBehaviour,
}

/// Whether and how a kubelet joins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Join {
    /// With the bootstrap token of its user data.
    #[default]
    Normal,
    /// Not at all, as if the operating system hung.
    Never,
    /// With a token that is not its own, as if the user data were spoiled; it is never let in.
    ForeignToken,
}

/// How pods end after their deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PodBehaviour {
    /// Pods end within their grace period.
    #[default]
    Normal,
    /// They never end.
    Stuck,
}

impl ProviderSpec {
    /// What the types alone do not catch; empty if the spec is good.
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        if !is_label(&self.region) {
            found.push(Violation::new("region", "must be lower-case letters, digits and `-`"));
        }
        if self.image.is_empty() {
            found.push(Violation::new("image", "must not be empty"));
        }
        let NodeCapacity { cpu, memory, pods } = &self.node_capacity;
        for (name, quantity) in [("cpu", cpu), ("memory", memory), ("pods", pods)] {
            if Quantity::parse(quantity).is_none_or(|amount| amount.nanos() < 0) {
                let path = format!("nodeCapacity.{name}");
                found.push(Violation::new(path, "must be a quantity such as 4, 500m or 16Gi"));
            }
        }
        for resource in Resource::ALL {
            for key in self.tags.of(resource).keys() {
                if key.is_empty() || key.starts_with(RESERVED_TAG_PREFIX) {
                    let path = format!("{}[{key}]", resource.path());
                    let why = "must not be empty or begin with ostler.dev/, which is the driver's";
                    found.push(Violation::new(path, why));
                }
            }
        }
        for (index, fault) in self.faults.iter().enumerate() {
            if let Err(contradiction) = fault.plan() {
                found.push(Violation::new(format!("faults[{index}]"), contradiction.to_string()));
            }
        }
        found
    }
}

/// It becomes part of a provider id, in which `/` separates.
fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::hot;

    use super::*;

    fn spec(json: serde_json::Value) -> ProviderSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn region_and_image_are_enough() {
        let spec = spec(serde_json::json!({"region": "eu-1", "image": "linux"}));
        assert_eq!(spec.violations(), []);
        assert_eq!(spec.node_capacity.memory, "16Gi");
    }

    #[test]
    fn every_violation_names_its_path() {
        let spec = spec(serde_json::json!({
            "region": "EU/1", "image": "", "nodeCapacity": {"memory": "16 GB"}, "tags": {"disk": {"ostler.dev/cluster-id": "x"}},
            "faults": [{"operation": "CreateMachine"}],
        }));
        let paths: Vec<_> = spec.violations().into_iter().map(|v| v.path).collect();
        let tag = "tags.disk[ostler.dev/cluster-id]";
        assert_eq!(paths, ["region", "image", "nodeCapacity.memory", tag, "faults[0]"]);
    }

    #[test]
    fn tags_and_kubelet_are_hot_and_what_the_instance_is_made_of_is_not() {
        let base = serde_json::json!({"region": "r", "image": "i"});
        let cases = [
            ("tags", serde_json::json!({"vm": {"a": "b"}}), None),
            ("kubelet", serde_json::json!({"pods": "stuck"}), None),
            ("latency", serde_json::json!({"boot": "1s"}), None),
            ("initialize", serde_json::json!(true), None),
            ("capacity", serde_json::json!({"maxInstances": 1}), None),
            ("throttle", serde_json::json!({"calls": 1, "per": "1s"}), None),
            ("faults", serde_json::json!([{"operation": "CreateMachine"}]), None),
            ("region", serde_json::json!("s"), Some("region")),
            ("image", serde_json::json!("j"), Some("image")),
            ("machineType", serde_json::json!("large"), Some("machineType")),
            ("nodeCapacity", serde_json::json!({"cpu": "8"}), Some("nodeCapacity.cpu")),
        ];
        for (path, value, fixed) in cases {
            let mut changed = base.clone();
            changed[path] = value;
            let changes = hot::fixed_changes(&spec(base.clone()), &spec(changed)).unwrap();
            assert_eq!(changes, fixed.into_iter().collect::<Vec<_>>(), "{path}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let json = r#"{"region":"r","image":"i","tag":{}}"#;
        let error = serde_json::from_str::<ProviderSpec>(json).unwrap_err();
        assert!(error.to_string().contains("tag"), "{error}");
    }
}
