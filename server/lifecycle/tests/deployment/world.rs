//! A deployment, its sets, Machines and Nodes, as plain objects. Passes are applied as an API server would; the world
//! moves only when a test says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use json_patch::merge;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use ostler_api::machine_deployment::{
    MachineDeploymentCondition, MachineDeploymentConditionType, MachineDeploymentStatus,
};
use ostler_api::names::{annotation, label};
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::deployment::conditions::find;
use ostler_lifecycle::deployment::plan::Decision;
use ostler_lifecycle::deployment::snapshot::{MachineView, SetView, Snapshot};
use ostler_lifecycle::deployment::{decide, plan};
use ostler_lifecycle::plan::Event;
use ostler_lifecycle::set::{Policy, Rank};
use ostler_lifecycle::write::{Object, Part};
use serde_json::{Value, json};

use crate::api::Api;

#[derive(Clone, PartialEq)]
pub(crate) struct World {
    pub(crate) deployment: MachineDeployment,
    pub(crate) sets: BTreeMap<String, MachineSet>,
    pub(crate) machines: BTreeMap<String, Machine>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) events: Vec<Event>,
    pub(crate) now: Timestamp,
    made: usize,
}

/// A deployment of `replicas`, one more at a time and none less.
pub(crate) fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": "d", "namespace": "default", "uid": "d-uid", "generation": 1,
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "d" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
            },
            "template": {
                "metadata": { "labels": { "app": "d", "name": "d" } },
                "spec": { "class": { "kind": "MachineClass", "name": "one" } }
            }
        }
    })
}

fn patched<K: Serialize + DeserializeOwned>(object: &K, patch: &Value) -> K {
    let mut value = serde_json::to_value(object).unwrap();
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

impl World {
    pub(crate) fn of(deployment: Value) -> Self {
        Self {
            deployment: serde_json::from_value(deployment).unwrap(),
            sets: BTreeMap::new(),
            machines: BTreeMap::new(),
            nodes: BTreeMap::new(),
            events: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            made: 0,
        }
    }

    /// A deployment of `replicas` whose machines run.
    pub(crate) fn running(replicas: i32) -> Self {
        let mut world = Self::of(deployment(replicas));
        world.settle();
        world
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let (owned, free): (Vec<_>, Vec<_>) = self
            .sets
            .values()
            .cloned()
            .map(Arc::new)
            .partition(|set| set.metadata.owner_references.is_some());
        let views = |set: &MachineSet| {
            let own = self.machines.values().filter(|one| owner(one) == set.name());
            own.map(|machine| MachineView {
                machine: Arc::new(machine.clone()),
                node: self.nodes.get(machine.name()).cloned().map(Arc::new),
            })
            .collect()
        };
        Snapshot {
            class: None,
            deployment: Arc::new(self.deployment.clone()),
            sets: owned
                .into_iter()
                .map(|set| SetView { machines: views(&set), class: None, set })
                .collect(),
            orphans: free,
            others: Vec::new(),
            guard_nodes: true,
            unreadable: None,
            again: Duration::from_mins(10),
            now: self.now,
        }
    }

    /// One pass in which the API server refuses the set for the template.
    pub(crate) fn pass_refused(&mut self, why: &str) {
        let decision = self.execute(Some((Part::Create, why.to_owned())));
        assert!(decision.create.is_some(), "a set for the template is tried again");
    }

    /// One pass, carried out.
    pub(crate) fn pass(&mut self) -> Decision {
        self.execute(None)
    }

    fn execute(&mut self, refuses: Option<(Part, String)>) -> Decision {
        let snapshot = self.snapshot();
        let own = Object::Deployment(Arc::clone(&snapshot.deployment));
        let sets = self.sets.values().cloned().map(|it| Object::Set(Arc::new(it)));
        let machines = self.machines.values().cloned().map(|it| Object::Machine(Arc::new(it)));
        let nodes = self.nodes.values().cloned();
        let nodes = nodes.map(|it| Object::Node(Arc::new(it), Arc::default()));
        let objects = sets.chain(machines).chain(nodes).chain([own.clone()]);
        let mut api = Api::with(objects);
        api.refuses = refuses;
        // A conflict ends the pass, e.g. about a Machine already written by the pass: the next pass goes on.
        let _tried = api.execute(&own, &plan(&snapshot), self.now);
        self.sets.clear();
        for object in api.objects() {
            let name = object.name().to_owned();
            match object {
                Object::Deployment(it) => self.deployment = it.as_ref().clone(),
                Object::Set(it) => drop(self.sets.insert(name, it.as_ref().clone())),
                Object::Machine(it) => drop(self.machines.insert(name, it.as_ref().clone())),
                Object::Node(it, _) => drop(self.nodes.insert(name, it.as_ref().clone())),
                Object::Pool(_) | Object::Check(_) | Object::Reserve(_) => {
                    unreachable!("a deployment has none")
                }
            }
        }
        self.events.append(&mut api.events);
        decide(&snapshot)
    }

    /// Passes until one writes nothing.
    pub(crate) fn passes(&mut self) {
        for _ in 0..50 {
            let before = self.deployment.clone();
            let plan = self.pass();
            let same = before == self.deployment && !plan.changes_anything();
            if same && plan.create.is_none() && plan.delete.is_empty() {
                return;
            }
        }
        panic!("it never settles: {:#?}", self.deployment);
    }

    /// The work of the set controller: creates Machines, and deletes them, chosen ones first.
    pub(crate) fn sets_work(&mut self) {
        for set in self.sets.clone().values() {
            let mut own: Vec<_> =
                self.machines.values().filter(|it| owner(it) == set.name()).cloned().collect();
            own.retain(|machine| !machine.is_deleting());
            own.sort_by_cached_key(|machine| Rank::of(machine, Policy::Oldest, self.now));
            let wanted = usize::try_from(set.spec.replicas()).unwrap();
            // Machines just handed over are protected.
            let counted = own.iter().filter(|it| it.label(label::UPDATE_RESULT).is_none());
            let surplus = counted.clone().count().saturating_sub(wanted);
            let chosen = own.iter().filter(|machine| is_chosen(machine, set));
            for machine in chosen.chain(counted.take(surplus)) {
                let dead = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
                self.machines.insert(machine.name().to_owned(), patched(machine, &dead));
            }
            let creates = set.label(label::SCALE_UP_DISABLED).is_none();
            for _ in own.len()..if creates { wanted } else { 0 } {
                self.made += 1;
                let name = format!("{}-{:02}", set.name(), self.made);
                let labels = &set.spec.template.metadata.as_ref().unwrap().labels;
                let machine = json!({
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                    "metadata": {
                        "name": name, "namespace": "default", "uid": name, "labels": labels,
                        "ownerReferences": [{
                            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                            "name": set.name(), "uid": set.uid(), "controller": true
                        }]
                    },
                    "spec": set.spec.template.spec,
                });
                self.machines.insert(name, serde_json::from_value(machine).unwrap());
            }
        }
        self.count();
    }

    /// The names of the machines that are not being deleted.
    pub(crate) fn living(&self) -> Vec<String> {
        let living = self.machines.values().filter(|it| !it.is_deleting());
        living.map(|it| it.name().to_owned()).collect()
    }

    /// Lost machines run again, and so do machines whose update was taken back.
    pub(crate) fn recover(&mut self) {
        for (name, machine) in &mut self.machines {
            let selected = self.nodes.get(name).is_some_and(is_selected);
            let updates = machine.phase().as_str().starts_with("InPlaceUpdat");
            if machine.phase().as_str() == "Unknown" || updates && !selected {
                *machine = with_phase(machine, "Running");
            }
        }
        self.count();
    }

    /// The statuses of the sets follow.
    pub(crate) fn count(&mut self) {
        for set in self.sets.values_mut() {
            let own: Vec<_> = self.machines.values().filter(|it| owner(it) == set.name()).collect();
            let running = own.iter().filter(|it| it.phase().as_str() == "Running").count();
            let status = json!({ "status": {
                "replicas": own.len(), "fullyLabeledReplicas": own.len(), "readyReplicas": running,
                "availableReplicas": running, "preservedFailedReplicas": 0,
            }});
            *set = patched(set, &status);
        }
    }

    /// Pending Machines become Nodes.
    pub(crate) fn machines_start(&mut self) {
        for (name, machine) in &mut self.machines {
            if machine.status.is_none() {
                *machine = with_phase(machine, "Running");
                let node = json!({ "metadata": { "name": name, "resourceVersion": "1" } });
                self.nodes.insert(name.clone(), serde_json::from_value(node).unwrap());
            }
        }
        self.count();
    }

    /// Machines that are being deleted are gone.
    pub(crate) fn machines_go(&mut self) {
        self.machines.retain(|_, machine| !machine.is_deleting());
        self.nodes.retain(|name, _| self.machines.contains_key(name));
        self.count();
    }

    /// Agents update the selected Nodes; `well`: with success.
    pub(crate) fn agents_work(&mut self, well: bool) {
        let result = if well { "successful" } else { "failed" };
        let condition = if well { "UpdateSuccessful" } else { "UpdateFailed" };
        for (name, node) in &mut self.nodes {
            if !is_selected(node) || !well && has_label(node, label::UPDATE_RESULT) {
                continue;
            }
            let said = json!({
                "metadata": { "labels": { label::UPDATE_RESULT: result } },
                "status": { "conditions": [
                    { "type": "InPlaceUpdate", "status": "True", "reason": condition }
                ] }
            });
            *node = patched(node, &said);
            let phase = if well { "Running" } else { "InPlaceUpdateFailed" };
            let machine = with_phase(&self.machines[name], phase);
            self.machines.insert(name.clone(), machine);
        }
        self.count();
    }

    /// Machines of selected Nodes are drained.
    pub(crate) fn drains(&mut self) {
        for (name, node) in &self.nodes {
            let labels = node.metadata.labels.clone().unwrap_or_default();
            if is_selected(node) && !labels.contains_key(label::UPDATE_RESULT) {
                let machine = with_phase(&self.machines[name], "InPlaceUpdating");
                self.machines.insert(name.clone(), machine);
            }
        }
        self.count();
    }

    /// Everything goes its way until nothing changes. Returns the fewest machines that were available meanwhile.
    pub(crate) fn settle(&mut self) -> usize {
        let mut fewest = usize::MAX;
        for _ in 0..200 {
            let before = (self.deployment.clone(), self.sets.clone(), self.machines.clone());
            self.passes();
            self.sets_work();
            fewest = fewest.min(self.available());
            self.machines_start();
            self.machines_go();
            if before == (self.deployment.clone(), self.sets.clone(), self.machines.clone()) {
                return fewest;
            }
        }
        panic!("it never settles: {:#?}", self.deployment);
    }

    pub(crate) fn available(&self) -> usize {
        let lives = |it: &&Machine| !it.is_deleting() && it.phase().as_str() == "Running";
        self.machines.values().filter(lives).count()
    }

    pub(crate) fn edit(&mut self, patch: &Value) {
        let generation = self.deployment.metadata.generation.map(|it| it + 1);
        self.deployment = patched(&self.deployment, patch);
        if patch.get("spec").is_some() {
            self.deployment.metadata.generation = generation;
        }
        self.now += jiff::SignedDuration::from_secs(60);
    }

    /// Another class: a rollout.
    pub(crate) fn roll_to(&mut self, class: &str) {
        let class = json!({ "class": { "name": class } });
        self.edit(&json!({ "spec": { "template": { "spec": class } } }));
    }

    pub(crate) fn edit_machine(&mut self, name: &str, patch: &Value) {
        let machine = self.machines.get_mut(name).unwrap();
        *machine = patched(machine, patch);
        self.count();
    }

    pub(crate) fn status(&self) -> MachineDeploymentStatus {
        self.deployment.status.clone().unwrap()
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<MachineDeploymentCondition> {
        find(&self.status().conditions, &MachineDeploymentConditionType::from(type_)).cloned()
    }

    /// Status and reason of condition Progressing.
    pub(crate) fn progressing(&self) -> (String, String) {
        let condition = self.condition("Progressing").unwrap();
        (condition.status, condition.reason.unwrap())
    }

    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.reason.name()).collect()
    }

    /// Replicas that the sets want, by class.
    pub(crate) fn wanted(&self) -> BTreeMap<String, i32> {
        let of =
            |set: &MachineSet| (set.spec.template.spec.class.name.clone(), set.spec.replicas());
        self.sets.values().map(of).collect()
    }

    /// The set of a class.
    pub(crate) fn set(&self, class: &str) -> &MachineSet {
        self.sets.values().find(|it| it.spec.template.spec.class.name == class).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.machines.keys().cloned().collect()
    }
}

pub(crate) fn with_phase(machine: &Machine, phase: &str) -> Machine {
    patched(machine, &json!({ "status": { "currentStatus": { "phase": phase } } }))
}

/// An autoscaler chose the Machine, and the set knows.
fn is_chosen(machine: &Machine, set: &MachineSet) -> bool {
    let marked = machine.annotation(annotation::MARKED_FOR_DELETION);
    let changed = set.annotation(annotation::REPLICAS_CHANGED_BY_SCALER);
    machine.annotation(annotation::PRIORITY) == Some("1")
        && marked.zip(changed).is_some_and(|(marked, changed)| marked <= changed)
}

pub(crate) fn owner(machine: &Machine) -> &str {
    let owners = machine.metadata.owner_references.as_deref().unwrap_or_default();
    owners.first().map(|owner| owner.name.as_str()).unwrap_or_default()
}

/// The Machine side heeds the selection of candidates only.
fn is_selected(node: &Node) -> bool {
    has_label(node, label::CANDIDATE_FOR_UPDATE) && has_label(node, label::SELECTED_FOR_UPDATE)
}

pub(crate) fn has_label(node: &Node, key: &str) -> bool {
    node.metadata.labels.as_ref().is_some_and(|all| all.contains_key(key))
}
