//! MachineClass: what the instances of many Machines look like. Its fields are at the top level.

use k8s_openapi::{
    api::core::v1::SecretReference,
    apimachinery::pkg::{apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The fields of a MachineClass, which stand at its top level: there is no `spec` in its JSON.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "MachineClass",
    plural = "machineclasses",
    singular = "machineclass",
    shortname = "mcc",
    namespaced,
    no_spec,
    status = "MachineClassStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "What the instances of Machines look like, and which driver makes them."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineClassSpec {
    /// What the autoscaler has to know of a Node before there is one: capacity with cpu, gpu and memory, instanceType, region
    /// and zone, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "class_node_template")]
    pub node_template: Option<Value>,
    /// The spec that the driver reads; opaque to the core.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::free_form")]
    pub provider_spec: Value,
    /// The driver that serves the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// User data, and possibly credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// Credentials; its keys win over those of `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretReference>,
    /// How an edit of the class reaches running instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_update: Option<HotUpdateSettings>,
    /// Whether the owner of a Machine replaces it as soon as the infrastructure announces that it ends its instance. Left out:
    /// true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_on_notice: Option<bool>,
}

/// What is known of a MachineClass. A definition of machine-controller-manager has no place for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineClassStatus {
    /// Condition `Valid`: whether Machines can be made with the class as it is now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How an edit of a class reaches running instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HotUpdateSettings {
    /// How many instances of the class are updated at a time: a number, or a percentage of the
    /// Machines of the class, rounded down. At least one is. Left out: 10%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "count_or_percent")]
    pub max_parallel: Option<IntOrString>,
}

fn count_or_percent(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "nullable": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": "^[0-9]+%?$",
        "minimum": 0,
    })
}

/// As upstream: an object whose unknown fields are kept.
fn class_node_template(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["capacity", "instanceType", "region", "zone"],
        "properties": {
            "architecture": { "type": "string", "nullable": true },
            "capacity": { "type": "object", "additionalProperties": { "x-kubernetes-int-or-string": true } },
            "virtualCapacity": { "type": "object", "nullable": true, "additionalProperties": { "x-kubernetes-int-or-string": true } },
            "instanceType": { "type": "string" },
            "region": { "type": "string" },
            "zone": { "type": "string" },
        },
    })
}

impl MachineClass {
    /// Type of the condition that says whether Machines can be made with it.
    pub const VALID: &str = "Valid";

    /// Secrets that the class names, later ones win. A reference without a namespace means the
    /// namespace of the class.
    pub fn secret_refs(&self) -> Vec<(String, String)> {
        let own = self.metadata.namespace.clone().unwrap_or_default();
        [&self.spec.secret_ref, &self.spec.credentials_secret_ref]
            .into_iter()
            .flatten()
            .filter_map(|secret| {
                let name = secret.name.clone().filter(|name| !name.is_empty())?;
                let namespace = secret.namespace.clone().filter(|name| !name.is_empty());
                Some((namespace.unwrap_or_else(|| own.clone()), name))
            })
            .collect()
    }

    /// Condition `Valid`, if there is one.
    pub fn valid(&self) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|it| it.type_ == Self::VALID)
    }

    /// The driver that serves the class; empty when the class does not say.
    pub fn provider(&self) -> &str {
        self.spec.provider.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_class_stand_at_its_top_level() {
        let json = serde_json::json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "default" },
            "provider": "AWS",
            "providerSpec": { "ami": "ami-1", "nested": { "n": 1 } },
            "secretRef": { "name": "s", "namespace": "default" },
            "credentialsSecretRef": { "name": "t" },
            "nodeTemplate": {
                "capacity": { "cpu": 4, "memory": "8Gi", "gpu": 0 },
                "instanceType": "m5", "region": "eu", "zone": "eu-1"
            }
        });
        let class: MachineClass = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(class.provider(), "AWS");
        assert_eq!(class.spec.provider_spec["nested"]["n"], 1);
        assert_eq!(
            class.secret_refs(),
            [("default".into(), "s".into()), ("default".into(), "t".into())]
        );
        let back = serde_json::to_value(&class).unwrap();
        assert_eq!(back["providerSpec"], json["providerSpec"]);
        assert_eq!(back.get("spec"), None);
    }
}
