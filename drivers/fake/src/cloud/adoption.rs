//! Instances that machine-controller-manager made: found by name and by the tags of its cluster.

use std::collections::BTreeMap;

use super::Instance;
use crate::spec::{ProviderSpec, Resource};

/// Keys of its tags begin so, the first of them with the name of a cluster.
const PREFIXES: [&str; 4] = [
    "kubernetes.io/cluster/",
    "kubernetes-io-cluster-",
    "kubernetes.io/role/",
    "kubernetes-io-role-",
];

/// The tags by which machine-controller-manager knows the instances of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McmTags(BTreeMap<String, String>);

impl McmTags {
    /// The tags of machine-controller-manager in a provider spec; `None`: the spec names no cluster, so its tags prove
    /// nothing.
    pub fn of(spec: &ProviderSpec) -> Option<Self> {
        let tags = spec.tags.of(Resource::Vm).iter();
        let tags = tags.filter(|(key, _)| PREFIXES.iter().any(|prefix| key.starts_with(prefix)));
        let tags: BTreeMap<_, _> = tags.map(|(key, value)| (key.clone(), value.clone())).collect();
        let cluster = |key: &String| PREFIXES.iter().take(2).any(|prefix| key.starts_with(prefix));
        tags.keys().any(cluster).then_some(Self(tags))
    }

    /// Whether an instance carries all of them.
    pub(super) fn are_on(&self, instance: &Instance) -> bool {
        let there = &instance.tags(Resource::Vm).tags;
        self.0.iter().all(|(key, value)| there.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(tags: &serde_json::Value) -> Option<McmTags> {
        let spec = json!({ "region": "r", "image": "i", "tags": { "vm": tags } });
        McmTags::of(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_role_without_a_cluster_says_nothing() {
        assert_eq!(of(&json!({ "kubernetes.io/role/worker": "1", "team": "a" })), None);
        for cluster in ["kubernetes.io/cluster/a", "kubernetes-io-cluster-a"] {
            let tags = of(&json!({ cluster: "1", "kubernetes.io/role/worker": "1", "team": "a" }));
            assert_eq!(tags.unwrap().0.len(), 2, "{cluster}");
        }
    }
}
