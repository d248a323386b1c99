//! A Machine's data for drivers, beyond its identity.

use std::collections::BTreeMap;

use crate::Machine;
use crate::names::{OWN_GROUP, label::ZONE};

/// How much text a driver gets, in bytes.
const MOST: usize = 16 << 10;

/// A Machine's data for drivers, beyond its identity, within 16 KiB. User data and secrets are never included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineMetadata {
    /// Labels of the Machine.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Machine, without the core's and without copies of the last applied object.
    pub annotations: BTreeMap<String, String>,
    /// `spec.nodeTemplate` as JSON; empty: there is none.
    pub node_template_json: String,
    /// `spec.version`; may be empty.
    pub version: String,
    /// Zone by label of the Machine, else of its node template; may be empty.
    pub zone: String,
    /// Something did not fit and was left out.
    pub incomplete: bool,
}

impl MachineMetadata {
    /// Reads a Machine.
    pub fn of(machine: &Machine) -> Self {
        let mut room = Room { left: MOST, incomplete: false };
        let (meta, spec) = (&machine.metadata, &machine.spec);
        let template = spec.node_template.as_ref();
        let of_node = template.and_then(|it| it.metadata.as_ref()?.labels.as_ref());
        let mut zones = [meta.labels.as_ref(), of_node].into_iter().flatten();
        let zone = zones.find_map(|labels| labels.get(ZONE)).cloned();
        let template = template.and_then(|it| serde_json::to_string(it).ok());
        Self {
            zone: room.text(zone),
            version: room.text(spec.version.clone()),
            node_template_json: room.text(template),
            labels: room.all(meta.labels.iter().flatten()),
            annotations: room
                .all(meta.annotations.iter().flatten().filter(|(key, _)| is_shown(key))),
            incomplete: room.incomplete,
        }
    }
}

/// Whether a driver gets an annotation: neither the core's own, nor a copy of the last applied object.
fn is_shown(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    let ours = prefix == OWN_GROUP || prefix.ends_with(".ostler.dev");
    !ours && !name.starts_with("last-applied-")
}

/// The rest of the limit.
struct Room {
    left: usize,
    incomplete: bool,
}

impl Room {
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left;
        if fits {
            self.left -= bytes;
        }
        self.incomplete |= !fits;
        fits
    }

    fn text(&mut self, text: Option<String>) -> String {
        text.filter(|text| self.takes(text.len())).unwrap_or_default()
    }

    fn all<'a>(
        &mut self,
        pairs: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> BTreeMap<String, String> {
        pairs
            .take_while(|(key, value)| self.takes(key.len() + value.len()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(labels: &serde_json::Value, annotations: &serde_json::Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "labels": labels, "annotations": annotations },
            "spec": {
                "class": { "kind": "MachineClass", "name": "c" },
                "version": "1.33",
                "bootstrap": { "dataSecretName": "canary" },
                "nodeTemplate": {
                    "metadata": { "labels": { "topology.kubernetes.io/zone": "b", "pool": "x" } },
                    "spec": { "taints": [{ "key": "t", "effect": "NoSchedule" }] },
                },
            },
        }))
        .unwrap()
    }

    #[test]
    fn it_is_what_users_say_of_a_machine_and_nothing_of_its_user_data() {
        let labels = json!({ "name": "workers" });
        let it = MachineMetadata::of(&machine(&labels, &json!({ "team": "a" })));
        assert_eq!((it.labels["name"].as_str(), it.annotations["team"].as_str()), ("workers", "a"));
        assert_eq!((it.version.as_str(), it.zone.as_str()), ("1.33", "b"));
        let template: serde_json::Value = serde_json::from_str(&it.node_template_json).unwrap();
        assert_eq!(template["spec"]["taints"][0]["key"], "t");
        assert!(!it.incomplete && !format!("{it:?}").contains("canary"));
        let own = machine(&json!({ "topology.kubernetes.io/zone": "a" }), &json!({}));
        assert_eq!(MachineMetadata::of(&own).zone, "a", "the Machine's own counts more");
    }

    #[test]
    fn annotations_of_controllers_are_not_shown() {
        for (key, shown) in [
            ("team", true),
            ("example.com/ostler.dev", true),
            ("node.machine.sapcloud.io/preserve", true),
            ("ostler.dev/operation", false),
            ("debug.ostler.dev/x", false),
            ("kubectl.kubernetes.io/last-applied-configuration", false),
            ("machine.sapcloud.io/last-applied-providerspec", false),
            ("node.machine.sapcloud.io/last-applied-anno-labels-taints", false),
            ("node.machine.sapcloud.io/last-applied-virtual-capacity", false),
        ] {
            let it = MachineMetadata::of(&machine(&json!({}), &json!({ key: "v" })));
            assert_eq!(it.annotations.contains_key(key), shown, "{key}");
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_that_is_said() {
        let large = "x".repeat(MOST / 2);
        let one = MachineMetadata::of(&machine(&json!({}), &json!({ "a": large, "b": "1" })));
        assert!(!one.incomplete && one.annotations.len() == 2);
        let annotations = json!({ "a": large, "b": large, "c": "small" });
        let two = MachineMetadata::of(&machine(&json!({ "l": "1" }), &annotations));
        assert!(two.incomplete);
        assert_eq!(two.annotations.keys().collect::<Vec<_>>(), ["a"], "the same ones each time");
        assert_eq!((two.labels.len(), two.version.as_str()), (1, "1.33"));
    }
}
