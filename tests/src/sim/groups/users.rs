//! Users' wishes about sets and deployments.

use std::fmt::Debug;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use ostler_api::names::{API_VERSION, annotation};
use ostler_api::{MachineDeployment, MachineSet};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::users::{Users, class_name};
use super::{Group, Rollout};

/// The label that a group selects.
pub const LABEL: &str = "app";

/// The template of a version: a restart in place of a new class is a rollout too.
fn template(group: Group, class: u8, version: u8) -> Value {
    json!({
        "metadata": {
            "labels": { LABEL: group.name(), "name": group.name() },
            "annotations": { "version": version.to_string() },
        },
        "spec": { "class": { "kind": "MachineClass", "name": class_name(class) } },
    })
}

fn strategy(rollout: Rollout) -> Value {
    match rollout {
        Rollout::Rolling(surge, unavailable) => json!({
            "type": "RollingUpdate",
            "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
        }),
        Rollout::Recreate => json!({ "type": "Recreate" }),
        Rollout::InPlace(surge, unavailable, manual) => json!({
            "type": "InPlaceUpdate",
            "inPlaceUpdate": {
                "maxSurge": surge, "maxUnavailable": unavailable,
                "orchestrationType": if manual { "Manual" } else { "Auto" },
            },
        }),
    }
}

impl Users {
    /// Makes a set or a deployment, unless there is one of this name.
    pub async fn keep(&self, group: Group, replicas: u8, class: u8, rollout: Rollout) {
        let mut spec = json!({
            "replicas": replicas,
            "selector": { "matchLabels": { LABEL: group.name() } },
            "template": template(group, class, 0),
        });
        let metadata = json!({ "name": group.name(), "namespace": "default" });
        match group {
            Group::Fleet(_) => {
                spec["strategy"] = strategy(rollout);
                spec["revisionHistoryLimit"] = json!(3);
                self.make::<MachineDeployment>("MachineDeployment", &metadata, &spec).await;
            }
            Group::Set(_) => self.make::<MachineSet>("MachineSet", &metadata, &spec).await,
        }
    }

    async fn make<K>(&self, kind: &str, metadata: &Value, spec: &Value)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = json!({
            "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec,
        });
        let typed: K = serde_json::from_value(object).expect("the object has the right shape");
        let api = Api::<K>::default_namespaced(self.client());
        api.create(&PostParams::default(), &typed).await.ok();
    }

    /// Merges something into a group, if it is there.
    pub async fn patch_group(&self, group: Group, patch: Value) {
        let (api, patch) = (api(self.client(), group), Patch::Merge(patch));
        api.patch(&group.name(), &PatchParams::default(), &patch).await.ok();
    }

    /// Wants another number of machines.
    pub async fn scale(&self, group: Group, replicas: u8) {
        self.patch_group(group, json!({ "spec": { "replicas": replicas } })).await;
    }

    /// Gives a deployment another template.
    pub async fn roll(&self, fleet: u8, class: u8, version: u8) {
        let group = Group::Fleet(fleet);
        let template = template(group, class, version);
        self.patch_group(group, json!({ "spec": { "template": template } })).await;
    }

    /// Wants the template back that was there before.
    pub async fn roll_back(&self, fleet: u8) {
        let patch = json!({ "spec": { "rollbackTo": { "revision": 0 } } });
        self.patch_group(Group::Fleet(fleet), patch).await;
    }

    /// Holds the rollout of a deployment, or lets it go on.
    pub async fn hold(&self, fleet: u8, on: bool) {
        let paused = on.then_some(true);
        self.patch_group(Group::Fleet(fleet), json!({ "spec": { "paused": paused } })).await;
    }

    /// Neither holds a rollout any more nor wants an earlier template.
    pub async fn forget_wishes(&self, fleet: u8) {
        let patch = json!({ "spec": { "paused": null, "rollbackTo": null } });
        self.patch_group(Group::Fleet(fleet), patch).await;
    }

    /// Deletes a group, if it exists, with its dependents or without.
    pub async fn delete_group(&self, group: Group, orphan: bool) {
        let api = api(self.client(), group);
        let params = if orphan { DeleteParams::orphan() } else { DeleteParams::default() };
        api.delete(&group.name(), &params).await.ok();
    }

    /// What Gardener's autoscaler does to make this machine of a deployment go: first the list, then the number.
    pub async fn mark(&self, fleet: u8, machine: &str, now: jiff::Timestamp) {
        let group = Group::Fleet(fleet);
        let Ok(Some(seen)) = api(self.client(), group).get_opt(&group.name()).await else { return };
        let replicas = seen.data.pointer("/spec/replicas").and_then(Value::as_i64);
        let Some(fewer) = replicas.and_then(|all| all.checked_sub(1)).filter(|it| *it >= 0) else {
            return;
        };
        let list = json!({ annotation::TRIGGER_DELETION: format!("{machine}~{now:.0}") });
        self.patch_group(group, json!({ "metadata": { "annotations": list } })).await;
        let when = json!({ annotation::REPLICAS_CHANGED_BY_SCALER: format!("{now:.0}") });
        let patch = json!({ "metadata": { "annotations": when }, "spec": { "replicas": fewer } });
        self.patch_group(group, patch).await;
    }

    /// Takes the label that the set selects from a machine, or puts it back.
    pub async fn relabel(&self, machine: &str, label: Option<&str>) {
        self.patch_machine(machine, json!({ "metadata": { "labels": { LABEL: label } } })).await;
    }

    /// Reads a group and writes it back whole, as clients with machine-controller-manager's types do: what they do not
    /// know of its status is lost.
    pub async fn put_group_as_upstream(&self, group: Group) {
        let (api, name) = (api(self.client(), group), group.name());
        let Ok(Some(mut seen)) = api.get_opt(&name).await else { return };
        if let Some(status) = seen.data.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("selector");
        }
        let Ok(written) = api.replace_status(&name, &PostParams::default(), &seen).await else {
            return;
        };
        seen.metadata.resource_version = written.metadata.resource_version;
        api.replace(&name, &PostParams::default(), &seen).await.ok();
    }
}

fn api(client: Client, group: Group) -> Api<DynamicObject> {
    let kind = match group {
        Group::Fleet(_) => ApiResource::erase::<MachineDeployment>(&()),
        Group::Set(_) => ApiResource::erase::<MachineSet>(&()),
    };
    Api::default_namespaced_with(client, &kind)
}
