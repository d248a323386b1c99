//! Rollouts that machine-controller-manager began with Recreate and InPlaceUpdate and left unfinished: the core that
//! replaces it recognises the sets by their templates and goes on. Bodies as machine-controller-manager writes them: its
//! own hashes, and empty fields of Go. (RollingUpdate and Recreate, both directions, with its binary:
//! `processes/takeover.rs`.)

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::await_condition;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::{annotation, label};
use ostler_api::{MachineClass, MachineDeployment, MachineSet};
use ostler_tests::objects::{agents, class, in_phase, instances};
use ostler_tests::world::{Setup, World};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";
/// Hashes of the templates, and what the sets are called after them, as Go computes them.
const OLD: (&str, &str) = ("3391508247", "d-5b5f7");
const NEW: (&str, &str) = ("1172049386", "d-88cc9");

/// A core that runs machines alone as long as the other controller runs the sets.
struct Stage {
    world: World,
    runs_sets: Arc<AtomicBool>,
}

impl Stage {
    async fn new() -> Self {
        let runs_sets = Arc::new(AtomicBool::new(false));
        let says = Arc::clone(&runs_sets);
        let world = World::start_with(Setup::tuned(move |options| {
            let controllers = if says.load(Ordering::SeqCst) { "*" } else { "machine" };
            options.settings.controllers = controllers.parse().unwrap();
        }))
        .await;
        let spec = json!({ "region": "local", "image": "fake-2.0" });
        world.apply::<MachineClass>(class("next", &spec)).await;
        Self { world, runs_sets }
    }

    /// The other controller is stopped, and ours takes its place.
    async fn take_over(&mut self) {
        self.world.stop_core().await;
        self.runs_sets.store(true, Ordering::SeqCst);
        self.world.start_core().await;
    }

    /// Creates an object just as it is written. Returns its UID.
    async fn write<K: Resource<DynamicType = ()>>(&self, object: Value) -> String {
        let kind = ApiResource::erase::<K>(&());
        let api = Api::<DynamicObject>::default_namespaced_with(self.world.client(), &kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap().metadata.uid.unwrap()
    }

    async fn edit<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api = Api::<K>::default_namespaced(self.world.client());
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn all<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api = Api::<K>::default_namespaced(self.world.client());
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn sets(&self) -> BTreeSet<String> {
        self.all::<MachineSet>().await.iter().map(|it| it.name().to_owned()).collect()
    }

    async fn machines(&self) -> BTreeSet<String> {
        self.all::<Machine>().await.iter().map(|it| it.name().to_owned()).collect()
    }

    async fn edit_node(&self, name: &str, labels: Value) {
        let api = Api::<Node>::all(self.world.client());
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The deployment of three, with this template and strategy.
    async fn deployment(&self, class: &str, strategy: Value) -> String {
        let object = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {
                "name": "d", "namespace": "default", "finalizers": [FINALIZER],
                "annotations": { "deployment.kubernetes.io/revision": "1" },
            },
            "spec": {
                "replicas": 3, "minReadySeconds": 500, "strategy": strategy,
                "selector": { "matchLabels": { "name": "d" } },
                "template": template(class, &json!({ "name": "d" })),
            },
        });
        self.write::<MachineDeployment>(object).await
    }

    /// A set of that deployment.
    async fn set(
        &self,
        (hash, name): (&str, &str),
        deployment: &str,
        class: &str,
        replicas: i32,
    ) -> String {
        let labels = json!({ "name": "d", "machine-template-hash": hash });
        let object = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {
                "name": name, "namespace": "default", "labels": labels, "finalizers": [FINALIZER],
                "annotations": {
                    "deployment.kubernetes.io/revision": "1",
                    "deployment.kubernetes.io/desired-replicas": "3",
                    "deployment.kubernetes.io/max-replicas": "3",
                },
                "ownerReferences": [owner("MachineDeployment", "d", deployment)],
            },
            "spec": {
                "replicas": replicas, "minReadySeconds": 500, "machineClass": {},
                "selector": { "matchLabels": labels },
                "template": template(class, &labels),
            },
        });
        self.write::<MachineSet>(object).await
    }

    /// A machine as a set of machine-controller-manager makes it, before a machine controller saw it: it comes up.
    async fn machine(
        &self,
        (hash, set): (&str, &str),
        uid: &str,
        class: &str,
        suffix: &str,
    ) -> String {
        let name = format!("{set}-{suffix}");
        let mut object = template(class, &json!({ "name": "d", "machine-template-hash": hash }));
        object["apiVersion"] = json!("machine.sapcloud.io/v1alpha1");
        object["kind"] = json!("Machine");
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["ownerReferences"] = json!([owner("MachineSet", set, uid)]);
        self.write::<Machine>(object).await;
        self.world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
        name
    }

    async fn until_rolled_out(&self) {
        let complete = |it: Option<&MachineDeployment>| {
            let status = it.and_then(|it| it.status.as_ref());
            status.is_some_and(|status| {
                let counts = [status.replicas, status.updated_replicas, status.available_replicas];
                counts == [3; 3] && status.observed_generation == it.unwrap().metadata.generation
            })
        };
        let api = Api::<MachineDeployment>::default_namespaced(self.world.client());
        let waited = timeout(Duration::from_hours(24), await_condition(api, "d", complete)).await;
        if waited.is_err() {
            let (sets, machines) = (self.all::<MachineSet>().await, self.machines().await);
            panic!("it was never rolled out: {sets:#?} {machines:?}");
        }
        // Time for late events.
        sleep(Duration::from_mins(5)).await;
    }

    async fn classes(&self) -> BTreeSet<String> {
        self.all::<Machine>().await.into_iter().map(|it| it.spec.class.name).collect()
    }
}

fn template(class: &str, labels: &Value) -> Value {
    json!({
        "metadata": { "creationTimestamp": null, "labels": labels },
        "spec": {
            "class": { "apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": class },
            "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": {} },
        },
    })
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Whether machines of both classes ever existed at the same time.
fn mixed(world: &World) -> tokio::task::JoinHandle<bool> {
    let api = Api::<Machine>::default_namespaced(world.client());
    tokio::spawn(async move {
        for _ in 0..600 {
            sleep(Duration::from_millis(500)).await;
            let all = api.list(&ListParams::default()).await.unwrap().items;
            let classes: BTreeSet<_> = all.iter().map(|it| it.spec.class.name.as_str()).collect();
            if classes.len() > 1 {
                return true;
            }
        }
        false
    })
}

#[tokio::test(start_paused = true)]
async fn a_recreate_goes_on_when_the_other_controller_deleted_one_of_three() {
    let mut stage = Stage::new().await;
    let deployment = stage.deployment("next", json!({ "type": "Recreate" })).await;
    let old = stage.set(OLD, &deployment, "fake", 0).await;
    for suffix in ["bbbbb", "ccccc", "ddddd"] {
        stage.machine(OLD, &old, "fake", suffix).await;
    }
    let api = Api::<Machine>::default_namespaced(stage.world.client());
    api.delete(&format!("{}-bbbbb", OLD.1), &DeleteParams::default()).await.unwrap();
    let mixed = mixed(&stage.world);
    stage.take_over().await;
    stage.until_rolled_out().await;
    assert!(!mixed.await.unwrap(), "the old machines go first");
    assert_eq!(stage.classes().await, ["next".to_owned()].into(), "#1153");
    let sets = stage.sets().await;
    assert!(sets.len() == 2 && sets.contains(OLD.1), "{sets:?}");
    assert_eq!(instances(&stage.world), 3);
    stage.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_recreate_goes_on_in_the_set_that_the_other_controller_made_for_the_template() {
    let mut stage = Stage::new().await;
    let deployment = stage.deployment("next", json!({ "type": "Recreate" })).await;
    stage.set(OLD, &deployment, "fake", 0).await;
    let new = stage.set(NEW, &deployment, "next", 3).await;
    let first = stage.machine(NEW, &new, "next", "bbbbb").await;
    stage.take_over().await;
    stage.until_rolled_out().await;
    assert_eq!(stage.sets().await, [OLD.1.to_owned(), NEW.1.to_owned()].into());
    let machines = stage.machines().await;
    assert!(machines.len() == 3 && machines.contains(&first), "{machines:?}");
    assert_eq!(instances(&stage.world), 3);
    stage.world.stop().await;
}

fn in_place(orchestration: &str) -> Value {
    json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "maxSurge": 0, "maxUnavailable": 1, "orchestrationType": orchestration
    }})
}

/// Of three machines one has been handed over, and its Node still says so; one is being updated; one waits.
async fn in_the_middle_of_an_update_in_place(orchestration: &str) -> (Stage, BTreeSet<String>) {
    let stage = Stage::new().await;
    let deployment = stage.deployment("next", in_place(orchestration)).await;
    let old = stage.set(OLD, &deployment, "fake", 2).await;
    let new = stage.set(NEW, &deployment, "next", 1).await;
    let held = json!({ "metadata": { "labels": { label::SCALE_UP_DISABLED: "true" } } });
    stage.edit::<MachineSet>(OLD.1, held).await;
    let candidate = json!({ label::CANDIDATE_FOR_UPDATE: "true" });
    let selected =
        json!({ label::CANDIDATE_FOR_UPDATE: "true", label::SELECTED_FOR_UPDATE: "true" });
    let mut names = BTreeSet::new();
    for suffix in ["bbbbb", "ccccc", "ddddd"] {
        let name = stage.machine(OLD, &old, "fake", suffix).await;
        stage.edit_node(&name, candidate.clone()).await;
        names.insert(name);
    }
    let (first, second) = (format!("{}-bbbbb", OLD.1), format!("{}-ccccc", OLD.1));
    stage.edit_node(&first, selected.clone()).await;
    let updating = in_phase(MachinePhase::InPlaceUpdating);
    stage.world.until(&first, "updating", updating).await;
    stage.edit_node(&first, json!({ label::UPDATE_RESULT: "successful" })).await;
    stage.world.until(&first, "Running", in_phase(MachinePhase::Running)).await;
    // The merge patch of the transfer. Before #1153 it left the name of the class.
    let transfer = json!({
        "metadata": {
            "ownerReferences": [owner("MachineSet", NEW.1, &new)],
            "labels": {
                "name": "d", "machine-template-hash": NEW.0, label::UPDATE_RESULT: "successful",
            },
        },
    });
    stage.edit::<Machine>(&first, transfer).await;
    stage.edit_node(&second, selected).await;
    let updating = in_phase(MachinePhase::InPlaceUpdating);
    stage.world.until(&second, "updating", updating).await;
    (stage, names)
}

/// Cluster API's autoscaler finds the sets, and sees which one is the newest.
fn autoscalers_know(sets: &[MachineSet]) {
    for (set, revision) in sets.iter().zip(["1", "2"]) {
        assert_eq!(set.annotation(annotation::REVISION), Some(revision), "{}", set.name());
        assert_eq!(set.annotation(annotation::CLUSTER_API_REVISION), Some(revision));
        assert_eq!(set.label(label::CLUSTER_API_DEPLOYMENT), Some("d"));
    }
}

async fn all_were_updated(stage: &Stage, names: &BTreeSet<String>) {
    stage.until_rolled_out().await;
    assert_eq!(stage.machines().await, *names, "machines stay");
    assert_eq!(instances(&stage.world), 3);
    assert_eq!(stage.classes().await, ["next".to_owned()].into());
    assert_eq!(stage.sets().await, [OLD.1.to_owned(), NEW.1.to_owned()].into());
    autoscalers_know(&stage.all::<MachineSet>().await);
    for machine in stage.all::<Machine>().await {
        assert_eq!(machine.label("machine-template-hash"), Some(NEW.0));
        assert_eq!(machine.label(label::UPDATE_RESULT), None, "it counts as all others do");
    }
    let nodes = Api::<Node>::all(stage.world.client());
    for node in nodes.list(&ListParams::default()).await.unwrap().items {
        let labels = node.metadata.labels.unwrap_or_default();
        for key in [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE, label::UPDATE_RESULT] {
            assert!(!labels.contains_key(key), "{labels:?}");
        }
        assert_ne!(node.spec.and_then(|spec| spec.unschedulable), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_in_place_goes_on_with_the_machine_that_was_handed_over_and_the_one_that_is_updated()
 {
    let (mut stage, names) = Box::pin(in_the_middle_of_an_update_in_place("Auto")).await;
    stage.take_over().await;
    let agents = tokio::spawn(agents(stage.world.client()));
    all_were_updated(&stage, &names).await;
    agents.abort();
    stage.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_in_place_whose_nodes_a_user_chooses_goes_on_and_chooses_none() {
    let (mut stage, names) = Box::pin(in_the_middle_of_an_update_in_place("Manual")).await;
    stage.take_over().await;
    let agents = tokio::spawn(agents(stage.world.client()));
    let last = format!("{}-ddddd", OLD.1);
    sleep(Duration::from_mins(10)).await;
    let node = Api::<Node>::all(stage.world.client()).get(&last).await.unwrap();
    let labels = node.metadata.labels.unwrap_or_default();
    assert!(!labels.contains_key(label::SELECTED_FOR_UPDATE), "that is the user's");
    stage.edit_node(&last, json!({ label::SELECTED_FOR_UPDATE: "true" })).await;
    all_were_updated(&stage, &names).await;
    agents.abort();
    stage.world.stop().await;
}
