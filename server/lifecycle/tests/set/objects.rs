//! Sets and Machines to decide about.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use json_patch::merge;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{Decision, Snapshot, decide as plan};
use serde_json::{Value, json};

/// The time in all tests.
pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A set with so many replicas, changed by JSON.
pub fn set(replicas: i32, change: Value) -> MachineSet {
    let mut set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": "s", "namespace": "default", "uid": "set-uid", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"]
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "a" } },
            "template": {
                "metadata": { "labels": { "app": "a" } },
                "spec": { "class": { "kind": "MachineClass", "name": "c" } }
            }
        }
    });
    merge(&mut set, &change);
    serde_json::from_value(set).unwrap()
}

/// A Machine of the set, Running, changed by JSON.
pub fn machine(name: &str, change: Value) -> Arc<Machine> {
    let mut machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T01:00:00Z",
            "labels": { "app": "a" },
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
                "uid": "set-uid", "controller": true, "blockOwnerDeletion": true
            }]
        },
        "spec": { "class": { "kind": "MachineClass", "name": "c" } },
        "status": { "currentStatus": { "phase": "Running" } }
    });
    merge(&mut machine, &change);
    Arc::new(serde_json::from_value(machine).unwrap())
}

/// A Machine with this phase.
pub fn with_phase(name: &str, phase: &str) -> Arc<Machine> {
    machine(name, json!({ "status": { "currentStatus": { "phase": phase } } }))
}

/// A Machine that is being deleted.
pub fn deleting(name: &str) -> Arc<Machine> {
    let at = json!({ "deletionTimestamp": "2026-01-01T11:00:00Z" });
    machine(
        name,
        json!({ "metadata": at, "status": { "currentStatus": { "phase": "Terminating" } } }),
    )
}

/// So many Running Machines, `m0` the oldest.
pub fn running(count: usize) -> Vec<Arc<Machine>> {
    (0..count)
        .map(|index| {
            let created = format!("2026-01-01T01:{index:02}:00Z");
            machine(&format!("m{index}"), json!({ "metadata": { "creationTimestamp": created } }))
        })
        .collect()
}

/// The input of a decision.
pub fn snapshot(set: MachineSet, machines: Vec<Arc<Machine>>) -> Snapshot {
    Snapshot {
        class: None,
        set: Arc::new(set),
        machines,
        others: Vec::new(),
        wishes: [].into(),
        unanswered: Vec::new(),
        blind: None,
        foreign: None,
        seed: 0,
        spares: Vec::new(),
        taking: Vec::new(),
        zones: Vec::new(),
        copies: None,
        freeze_due: false,
        runs_machines: true,
        again: Duration::from_mins(10),
        now: now(),
    }
}

/// The decision.
pub fn decide(set: MachineSet, machines: Vec<Arc<Machine>>) -> Decision {
    plan(&snapshot(set, machines))
}

/// The names of the victims.
pub fn victims(plan: &Decision) -> Vec<&str> {
    plan.delete.iter().map(|victim| victim.machine.name()).collect()
}

/// The names of Machines.
pub fn names(machines: &[Arc<Machine>]) -> Vec<&str> {
    machines.iter().map(|machine| machine.name()).collect()
}
