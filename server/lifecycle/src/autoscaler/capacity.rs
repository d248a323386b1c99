//! The annotations by which Cluster API's provider scales a group from nothing: derived from the class, where the user wrote
//! none.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::MachineClass;
use ostler_api::machine::MachineSpec;
use ostler_api::names::annotation::DERIVED_CAPACITY;

use super::limits::limits;
use super::shape::{GPU, NodeShape};

/// Prefix of the keys.
pub const PREFIX: &str = "capacity.cluster-autoscaler.kubernetes.io/";

/// The annotation of each resource.
const KEYS: [(&str, &str); 5] = [
    ("cpu", "cpu"),
    ("memory", "memory"),
    ("ephemeral-storage", "ephemeral-disk"),
    ("pods", "maxPods"),
    (GPU, "gpu-count"),
];

/// The annotations of a group of that shape.
fn of(shape: &NodeShape) -> BTreeMap<String, String> {
    let key = |name: &str| format!("{PREFIX}{name}");
    let amount = |(resource, name): &(&str, &str)| {
        shape.capacity.get(*resource).map(|amount| (key(name), amount.clone()))
    };
    let mut all: BTreeMap<_, _> = KEYS.iter().filter_map(amount).collect();
    if shape.capacity.contains_key(GPU) {
        all.insert(key("gpu-type"), GPU.to_owned());
    }
    let labels: Vec<_> = shape.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    all.insert(key("labels"), labels.join(","));
    let taint = |taint: &k8s_openapi::api::core::v1::Taint| {
        let value = taint.value.as_deref().unwrap_or_default();
        format!("{}={value}:{}", taint.key, taint.effect)
    };
    if !shape.taints.is_empty() {
        all.insert(key("taints"), shape.taints.iter().map(taint).collect::<Vec<_>>().join(","));
    }
    all
}

/// Sets the capacity annotations of a group. Annotations of a user stay; derived ones without a cause are removed. A
/// group that no autoscaler scales has none; without the class the annotations stay unchanged.
pub fn derive(metadata: &mut ObjectMeta, class: Option<&MachineClass>, template: &MachineSpec) {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
    let before = annotation(DERIVED_CAPACITY).cloned();
    let scales = limits(metadata).ok().flatten().is_some();
    if scales && class.is_none() || !scales && before.is_none() {
        return;
    }
    let shape = class.filter(|_| scales).and_then(|class| NodeShape::of(class, template));
    let wanted = shape.as_ref().map(of).unwrap_or_default();
    let before: BTreeSet<_> = before.iter().flat_map(|it| it.split(',')).collect();
    let annotations = metadata.annotations.get_or_insert_default();
    let is_ours = |key: &str| key.strip_prefix(PREFIX).is_some_and(|name| before.contains(name));
    annotations.retain(|key, _| !is_ours(key) || wanted.contains_key(key));
    let mut derived = Vec::new();
    for (key, value) in wanted {
        if is_ours(&key) || !annotations.contains_key(&key) {
            derived.extend(key.strip_prefix(PREFIX).map(str::to_owned));
            annotations.insert(key, value);
        }
    }
    if derived.is_empty() {
        annotations.remove(DERIVED_CAPACITY);
    } else {
        annotations.insert(DERIVED_CAPACITY.to_owned(), derived.join(","));
    }
}

#[cfg(test)]
mod tests {
    use ostler_api::names::annotation::{AUTOSCALER_MAX_OF_GROUP, AUTOSCALER_MIN_OF_GROUP};
    use serde_json::json;

    use super::*;

    fn class(cpu: i32, gpu: i32) -> MachineClass {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c" }, "providerSpec": {},
            "nodeTemplate": {
                "capacity": { "cpu": cpu, "gpu": gpu, "memory": "8Gi" },
                "instanceType": "large", "region": "r", "zone": "z", "architecture": "arm64"
            }
        }))
        .unwrap()
    }

    fn metadata(given: &[(&str, &str)]) -> ObjectMeta {
        let limits = [(AUTOSCALER_MIN_OF_GROUP, "0"), (AUTOSCALER_MAX_OF_GROUP, "3")];
        let all = limits.iter().chain(given);
        let all = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ObjectMeta { annotations: Some(all), ..ObjectMeta::default() }
    }

    fn shown(metadata: &ObjectMeta) -> BTreeMap<&str, &str> {
        let all = metadata.annotations.iter().flatten();
        all.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.as_str()))).collect()
    }

    #[test]
    fn what_the_class_says_is_shown_with_labels_taints_architecture_and_graphics_cards() {
        let template = serde_json::from_value(json!({ "nodeTemplate": {
            "metadata": { "labels": { "team": "a" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] }
        } }))
        .unwrap();
        let mut metadata = metadata(&[]);
        derive(&mut metadata, Some(&class(4, 2)), &template);
        let labels = "kubernetes.io/arch=arm64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=large,team=a,\
                      topology.kubernetes.io/region=r,topology.kubernetes.io/zone=z";
        let expected = [
            ("cpu", "4"),
            ("memory", "8Gi"),
            ("maxPods", "110"),
            ("gpu-type", GPU),
            ("gpu-count", "2"),
            ("labels", labels),
            ("taints", "k=:NoSchedule"),
        ];
        assert_eq!(shown(&metadata), expected.into());
    }

    #[test]
    fn what_a_user_wrote_stays_and_what_was_derived_follows_the_class() {
        let (mine, template) = (format!("{PREFIX}memory"), MachineSpec::default());
        let mut metadata = metadata(&[(&mine, "1Gi")]);
        derive(&mut metadata, Some(&class(4, 2)), &template);
        derive(&mut metadata, Some(&class(8, 0)), &template);
        let shown = shown(&metadata);
        assert_eq!((shown["cpu"], shown["memory"]), ("8", "1Gi"));
        assert!(!shown.contains_key("gpu-type"), "{shown:?}");
    }

    #[test]
    fn nothing_changes_without_limits_and_what_was_derived_goes_with_them() {
        let mut without = ObjectMeta::default();
        derive(&mut without, Some(&class(4, 0)), &MachineSpec::default());
        assert_eq!(without, ObjectMeta::default());
        let mut metadata = metadata(&[]);
        derive(&mut metadata, Some(&class(4, 0)), &MachineSpec::default());
        let derived = metadata.clone();
        derive(&mut metadata, None, &MachineSpec::default());
        assert_eq!(metadata, derived, "its class cannot be seen");
        let all = metadata.annotations.as_mut().unwrap();
        all.remove(AUTOSCALER_MAX_OF_GROUP);
        all.remove(AUTOSCALER_MIN_OF_GROUP);
        derive(&mut metadata, Some(&class(4, 0)), &MachineSpec::default());
        assert_eq!(metadata.annotations, Some(BTreeMap::new()));
    }
}
