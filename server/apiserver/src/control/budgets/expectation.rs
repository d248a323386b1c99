//! How many replicas the workloads behind a budget's pods want.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    kinds::{
        Resource,
        access::{flag, items, text},
    },
    store::Key,
};

use super::{
    super::{Owner, Plane},
    arithmetic::Pod,
};

impl Plane {
    /// The sum over the workloads that manage the pods. Pods that nothing manages do not count.
    pub(super) fn expected_scale(
        &self,
        namespace: &str,
        pods: &[(&str, &Pod)],
    ) -> Result<i64, String> {
        let mut workloads = BTreeMap::new();
        for (name, pod) in pods {
            let Some(owner) = pod.controller() else { continue };
            if workloads.contains_key(&owner.uid) {
                continue;
            }
            let (uid, replicas) = self
                .scale_of(namespace, owner)
                .ok_or_else(|| format!("found no controllers for pod {name:?}"))?;
            workloads.insert(owner.uid.clone(), 0);
            workloads.insert(uid, replicas);
        }
        Ok(workloads.values().sum())
    }

    /// The uid and the wanted replicas of a workload; of a Deployment for its ReplicaSets.
    fn scale_of(&self, namespace: &str, owner: &Owner) -> Option<(String, i64)> {
        let (group, version) =
            owner.api_version.split_once('/').unwrap_or(("", owner.api_version.as_str()));
        let registry = self.served.registry();
        let resource = registry.by_kind(group, version, &owner.kind)?;
        let (storage, paths) = (&resource.storage, scale_paths(resource)?);
        let key = Key::new(&storage.group, &storage.plural, namespace, &owner.name);
        let object = self.object(&key)?;
        if text(&object, "/metadata/uid") != owner.uid {
            return None;
        }
        // Not twice: a ReplicaSet may name itself as owner.
        if owner.kind == "ReplicaSet"
            && let Some(deployment) = controller(&object).filter(|one| one.kind != "ReplicaSet")
        {
            return self.scale_of(namespace, &deployment);
        }
        let pointer = paths.replace('.', "/");
        let replicas = object.pointer(&pointer).and_then(Value::as_i64).unwrap_or(0);
        Some((owner.uid.clone(), replicas))
    }
}

fn scale_paths(resource: &Resource) -> Option<&str> {
    resource.subresources.scale.as_ref().map(|paths| paths.spec_replicas.as_str())
}

fn controller(object: &Value) -> Option<Owner> {
    let owners = items(object, "/metadata/ownerReferences");
    let owner = owners.iter().find(|owner| flag(owner, "/controller"))?;
    serde_json::from_value(owner.clone()).ok()
}
