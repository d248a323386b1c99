//! Actions of users, and their manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::LazyLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::{Client, Resource};
use ostler_api::MachineClass;
use ostler_api::machine::Machine;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::pools;
use super::world::PROVIDERS;

/// Users, with a way to the API server that always works: what they want is not in question.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a client cannot be shown")]
pub struct Users {
    client: Client,
}

/// Made once for all lives. Without descriptions, which are their larger part and are not read here.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    let mute = |crd: CustomResourceDefinition| {
        let mut crd = serde_json::to_value(crd).expect("a definition is an object");
        crd.pointer_mut("/spec/versions").into_iter().for_each(drop_descriptions);
        serde_json::from_value(crd).expect("it is valid without descriptions")
    };
    ostler_api::crds().into_iter().map(mute).collect()
});

fn drop_descriptions(within: &mut Value) {
    match within {
        Value::Object(fields) => {
            // A property of this name would be a schema, and no text.
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Name of a machine.
pub fn machine_name(number: u8) -> String {
    format!("m{number}")
}

/// Name of a class.
pub fn class_name(number: u8) -> String {
    format!("c{number}")
}

/// The provider spec of a class whose machines have the tags of a version.
pub fn spec(class: u8, version: u8) -> Value {
    let tags = json!({ "version": version.to_string() });
    let mut spec = json!({
        "region": "r", "image": "i",
        "tags": { "vm": tags, "network": tags, "disk": tags },
        "kubelet": { "podShutdown": "3s" },
    });
    let (key, value) = match class {
        // Quick.
        0 => ("initialize", json!(false)),
        // Slow, with an initialization.
        1 => {
            spec["initialize"] = json!(true);
            let latency = json!({
                "create": "4s", "boot": "6s", "join": "5s", "initialize": "3s",
                "update": "2s", "delete": "7s", "list": "3s",
            });
            ("latency", latency)
        }
        // Of the second provider.
        2 => ("latency", json!({ "create": "2s", "boot": "2s", "delete": "1s" })),
        // Its kubelets stop posting status for a while, and their pods are slow.
        3 => (
            "kubelet",
            json!({ "notReadyAfter": "50s", "readyAgainAfter": "70s", "podShutdown": "15s" }),
        ),
        // Its kubelets never join.
        _ => ("kubelet", json!({ "join": "never" })),
    };
    spec[key] = value;
    spec
}

/// Whether machines of this class become Nodes.
pub const fn joins(class: u8) -> bool {
    class < 4
}

/// The provider of a class.
pub const fn provider(class: u8) -> usize {
    if class == 2 { 1 } else { 0 }
}

/// The provider of the class `class`.
pub fn provider_of(class: &str) -> Option<usize> {
    // Classes of groups all belong to the first provider.
    if (0..pools::plans::CLASSES).any(|number| pools::users::class_name(number) == class) {
        return Some(0);
    }
    (0..super::plan::CLASSES).find(|number| class_name(*number) == class).map(provider)
}

/// Status fields of a machine that machine-controller-manager's types have.
const UPSTREAM_STATUS: [&str; 5] =
    ["addresses", "conditions", "lastOperation", "currentStatus", "lastKnownState"];

fn class(number: u8) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": class_name(number), "namespace": "default" },
        "provider": PROVIDERS[provider(number)],
        "providerSpec": spec(number, 0),
        "secretRef": { "name": "cloud", "namespace": "default" },
    })
}

impl Users {
    /// Users with this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Makes the initial objects: the kinds, a secret, the classes.
    pub async fn prepare(&self) {
        for crd in CRDS.iter() {
            let api = Api::all(self.client());
            api.create(&PostParams::default(), crd).await.expect("a kind is accepted");
        }
        let user_data = "--hostname-override=<<MACHINE_NAME>> --token=<<BOOTSTRAP_TOKEN>> \
                         --register-with-taints=node.machine.sapcloud.io/instance-not-ready=:NoSchedule";
        self.apply::<Secret>(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "cloud", "namespace": "default" },
            "stringData": { "userData": user_data, "accessToken": "good" },
        }))
        .await;
        for number in 0..super::plan::CLASSES {
            self.apply::<MachineClass>(class(number)).await;
        }
    }

    async fn apply<K>(&self, object: Value) -> bool
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let typed: K = serde_json::from_value(object).expect("the object has the right shape");
        let api = Api::<K>::default_namespaced(self.client());
        api.create(&PostParams::default(), &typed).await.is_ok()
    }

    /// Makes a machine, unless there is one of this name.
    pub async fn create(&self, number: u8, class: u8) {
        self.apply::<Machine>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": machine_name(number), "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": class_name(class) } },
        }))
        .await;
    }

    /// Deletes a machine, if it is there.
    pub async fn delete(&self, name: &str) {
        self.delete_by_name::<Machine>(name).await;
    }

    /// Deletes an object, if it is there.
    pub async fn delete_by_name<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api = Api::<K>::default_namespaced(self.client());
        api.delete(name, &DeleteParams::default()).await.ok();
    }

    /// Merges something into a machine, if it is there.
    pub async fn patch_machine(&self, name: &str, patch: Value) {
        let api = Api::<Machine>::default_namespaced(self.client());
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.ok();
    }

    /// Pauses a machine, or takes that back.
    pub async fn pause(&self, name: &str, on: bool) {
        let paused = json!({ "ostler.dev/paused": on.then_some("true") });
        self.patch_machine(name, json!({ "metadata": { "annotations": paused } })).await;
    }

    /// Reads a machine and writes it back as a client does that has machine-controller-manager's types: what they do
    /// not know is lost. A machine that is being deleted gets the phase Terminating, as machine-controller-manager's
    /// MachineSet controller sets it.
    pub async fn put_as_upstream(&self, name: &str) {
        let kind = ApiResource::erase::<Machine>(&());
        let api = Api::<DynamicObject>::default_namespaced_with(self.client(), &kind);
        let Ok(Some(mut machine)) = api.get_opt(name).await else { return };
        let deleted = machine.metadata.deletion_timestamp.is_some();
        if let Some(status) = machine.data.get_mut("status").and_then(Value::as_object_mut) {
            status.retain(|field, _| UPSTREAM_STATUS.contains(&field.as_str()));
            if deleted {
                status.insert("currentStatus".to_owned(), json!({ "phase": "Terminating" }));
            }
        }
        let Ok(written) = api.replace_status(name, &PostParams::default(), &machine).await else {
            return;
        };
        machine.metadata.resource_version = written.metadata.resource_version;
        api.replace(name, &PostParams::default(), &machine).await.ok();
    }

    /// Replaces a machine by the content of its original file.
    pub async fn put_old_file(&self, name: &str) {
        let api = Api::<Machine>::default_namespaced(self.client());
        let Ok(Some(machine)) = api.get_opt(name).await else { return };
        let mut old = Machine::new(name, machine.spec);
        old.spec.provider_id = None;
        api.replace(name, &PostParams::default(), &old).await.ok();
    }

    /// Accepts the deletion of orphans, if it is on hold.
    pub async fn accept_orphans(&self) {
        let api = Api::<ConfigMap>::default_namespaced(self.client());
        let held = ["orphans", "orphansSince", "orphansReason"];
        let lifted: BTreeMap<_, Option<&str>> = held.iter().map(|key| (*key, None)).collect();
        let patch = Patch::Merge(json!({ "data": lifted }));
        api.patch(CLUSTER_ID_CONFIG_MAP, &PatchParams::default(), &patch).await.ok();
    }

    /// Gives the machines of a class the tags of a version.
    pub async fn edit(&self, class: u8, version: u8) {
        let api = Api::<MachineClass>::default_namespaced(self.client());
        let patch = json!({ "providerSpec": spec(class, version) });
        let (name, params, patch) =
            (class_name(class), PatchParams::default(), Patch::Merge(patch));
        api.patch(&name, &params, &patch).await.expect("classes are there");
    }

    /// Cordons a Node, if it is there.
    pub async fn cordon(&self, node: &str, on: bool) {
        let api = Api::<Node>::all(self.client());
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": on } }));
        api.patch(node, &PatchParams::default(), &patch).await.ok();
    }

    /// What the controller of Nodes writes when the kubelet of this instance was silent for too long.
    pub async fn node_unknown(&self, node: &str, instance: &str, now: Timestamp) {
        let api = Api::<Node>::all(self.client());
        let found = api.get_opt(node).await.ok().flatten();
        let id = found.and_then(|node| node.spec?.provider_id);
        // Another instance may have the name by now.
        if id.is_some_and(|id| id != instance) {
            return;
        }
        let condition = json!({
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            // Without it that of the join stays, and the Node would be silent since then.
            "lastTransitionTime": format!("{now:.0}"),
        });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        api.patch_status(node, &PatchParams::default(), &patch).await.ok();
    }

    /// Deletes the Nodes of these instances.
    pub async fn forget_nodes(&self, gone: &BTreeSet<String>) {
        if gone.is_empty() {
            return;
        }
        let api = Api::<Node>::all(self.client());
        for node in self.all::<Node>().await {
            let id = node.spec.and_then(|spec| spec.provider_id);
            if id.is_some_and(|id| gone.contains(&id)) {
                let name = node.metadata.name.unwrap_or_default();
                let params = DeleteParams::default();
                let params = match node.metadata.uid {
                    Some(uid) => params
                        .preconditions(Preconditions { uid: Some(uid), resource_version: None }),
                    None => params,
                };
                api.delete(&name, &params).await.ok();
            }
        }
    }

    /// Binds pods to a Node that takes pods.
    pub async fn pods(&self, node: &str, count: u8, grace: u8, held: bool, round: usize) {
        let found = Api::<Node>::all(self.client()).get_opt(node).await;
        let takes = |node: &Node| {
            let spec = node.spec.as_ref();
            node.metadata.deletion_timestamp.is_none()
                && spec.is_some_and(|spec| spec.unschedulable != Some(true))
        };
        if !found.ok().flatten().as_ref().is_some_and(takes) {
            return;
        }
        let app = format!("{node}-{round}");
        if held {
            self.apply::<PodDisruptionBudget>(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": app, "namespace": "default" },
                "spec": { "minAvailable": 100, "selector": { "matchLabels": { "app": app } } },
            }))
            .await;
        }
        for number in 0..count {
            self.bind(&format!("{app}-{number}"), &app, node, grace).await;
        }
    }

    /// Binds a pod that comes back under the same name.
    pub async fn pod(&self, name: &str, node: &str, grace: u8) {
        self.bind(name, "db", node, grace).await;
    }

    async fn bind(&self, name: &str, app: &str, node: &str, grace: u8) {
        self.apply::<Pod>(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": grace,
                "containers": [{ "name": "app", "image": "pause" }],
            },
        }))
        .await;
    }

    /// Takes all budgets away.
    pub async fn release(&self) {
        let api = Api::<PodDisruptionBudget>::default_namespaced(self.client());
        for budget in
            api.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default()
        {
            let name = budget.metadata.name.unwrap_or_default();
            api.delete(&name, &DeleteParams::default()).await.ok();
        }
    }

    /// An object, if it is there.
    pub async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        Api::<K>::default_namespaced(self.client()).get_opt(name).await.ok().flatten()
    }

    /// All objects of a kind.
    ///
    /// # Panics
    /// If they cannot be listed: nothing is wrong on this way.
    pub async fn all<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api = Api::<K>::all(self.client());
        api.list(&ListParams::default()).await.expect("the API answers its users").items
    }
}
