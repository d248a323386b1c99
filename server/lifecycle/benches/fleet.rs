//! What a decision about a MachineSet, a MachineDeployment and a MachinePool takes of a CPU, by the number of their Machines.
//!
//! `cargo bench -p ostler-lifecycle`

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints, of what it knows"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::driver::OperationKind;
use ostler_api::machine::InstanceState;
use ostler_api::operation::OperationView;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};
use ostler_lifecycle::cluster::ClusterIds;
use ostler_lifecycle::operation::SecretText;
use ostler_lifecycle::snapshot::{
    ClassFacts, ClassView, DriverFacts, DriverView, SecretView, Settings,
};
use ostler_lifecycle::{deployment, pool, set};
use serde_json::{Value, json};

/// How often each decision is made.
const TIMES: u32 = 50;
/// What the driver of the pool can do.
const KINDS: [OperationKind; 6] = [
    OperationKind::CreatePool,
    OperationKind::UpdatePool,
    OperationKind::DeletePool,
    OperationKind::GetPoolStatus,
    OperationKind::DeletePoolMachines,
    OperationKind::UpdatePoolMachine,
];

fn main() {
    for size in [100, 1000, 5000] {
        let snapshot = set_of(size, size);
        let pass = || {
            let plan = set::decide(&snapshot);
            let failures = set::Failures::default();
            set::status(&snapshot.set, &plan, &failures, snapshot.now)
        };
        row(&format!("a set of {size} that has all it wants"), pass);
        let snapshot = set_of(size, size - size / 10);
        row(&format!("a set of {size} that loses a tenth"), || set::plan(&snapshot));
        let snapshot = deployment_of(size);
        row(&format!("a deployment of {size} that has all it wants"), || {
            deployment::plan(&snapshot)
        });
    }
    for size in [1000, 10_000] {
        let snapshot = pool_of(size);
        // A pass takes the group as it was last read.
        let group = || black_box(snapshot.known.clone());
        row(&format!("a pool of {size} that has all it wants"), || {
            (group(), pool::plan(&snapshot))
        });
    }
}

fn row<T>(what: &str, mut pass: impl FnMut() -> T) {
    let before = cpu();
    for _ in 0..TIMES {
        black_box(pass());
    }
    println!("{what}: {:.1?}", cpu().saturating_sub(before) / TIMES);
}

/// How long a CPU has worked for this thread: what else runs on the computer does not count.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    let nanoseconds = stat.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("it is a number"))
}

fn set(name: &str, replicas: usize) -> Arc<MachineSet> {
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "generation": 1,
            "labels": { "app": "fleet" },
            "ownerReferences": [owner("MachineDeployment", "fleet")],
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "fleet" } },
            "template": template(),
        },
    });
    Arc::new(serde_json::from_value(set).expect("it is a set"))
}

fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "fleet", "name": "fleet" } },
        "spec": {
            "class": { "kind": "MachineClass", "name": "class" },
            "nodeTemplate": {
                "metadata": { "labels": { "pool": "workers" }, "annotations": { "a": "b" } },
                "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            },
        },
    })
}

fn owner(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": name,
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn machine(index: usize) -> Arc<Machine> {
    let name = format!("fleet-{index:05}");
    let mut spec = template()["spec"].clone();
    spec["providerID"] = json!(format!("fake:///eu-1/i-{index:016x}"));
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app": "fleet", "name": "fleet", "node": name },
            "annotations": { "machinepriority.machine.sapcloud.io": "3" },
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "ownerReferences": [owner("MachineSet", "fleet")],
        },
        "spec": spec,
        "status": {
            "currentStatus": { "phase": "Running", "lastUpdateTime": "2026-01-01T00:00:00Z" },
            "lastOperation": { "state": "Successful", "type": "HealthCheck" },
        },
    });
    Arc::new(serde_json::from_value(machine).expect("it is a Machine"))
}

fn set_of(machines: usize, replicas: usize) -> set::Snapshot {
    set::Snapshot {
        class: None,
        set: set("fleet", replicas),
        machines: (0..machines).map(machine).collect(),
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
        now: Timestamp::UNIX_EPOCH,
    }
}

fn deployment_of(machines: usize) -> deployment::snapshot::Snapshot {
    let fleet = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": "fleet", "namespace": "default", "uid": "fleet", "generation": 1,
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
        },
        "spec": {
            "replicas": machines,
            "selector": { "matchLabels": { "app": "fleet" } },
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": "10%", "maxUnavailable": 0 },
            },
            "template": template(),
        },
    });
    let fleet: MachineDeployment = serde_json::from_value(fleet).expect("it is a deployment");
    let view = |index| deployment::snapshot::MachineView {
        machine: machine(index),
        node: Some(node(index)),
    };
    let views = (0..machines).map(view).collect();
    deployment::snapshot::Snapshot {
        class: None,
        deployment: Arc::new(fleet),
        sets: vec![deployment::snapshot::SetView {
            set: set("fleet", machines),
            class: None,
            machines: views,
        }],
        orphans: Vec::new(),
        others: Vec::new(),
        guard_nodes: true,
        unreadable: None,
        again: Duration::from_mins(10),
        now: Timestamp::UNIX_EPOCH,
    }
}

fn node(index: usize) -> Arc<Node> {
    let name = format!("fleet-{index:05}");
    let node = json!({
        "metadata": { "name": name, "resourceVersion": "1", "labels": { "pool": "workers" } },
        "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
    });
    Arc::new(serde_json::from_value(node).expect("it is a Node"))
}

fn class() -> ClassFacts {
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "class", "namespace": "default" },
        "provider": "fake.ostler.dev", "providerSpec": {},
    });
    let class: MachineClass = serde_json::from_value(class).expect("it is a class");
    ClassFacts::of(&class)
}

fn pool_of(machines: usize) -> pool::Snapshot {
    let class = class();
    let all = json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
        "metadata": {
            "name": "fleet", "namespace": "default", "uid": "fleet", "generation": 1,
            "finalizers": ["ostler.dev/machine-pool"],
        },
        "spec": { "replicas": machines, "template": template() },
        "status": { "providerID": "fake:///fleet", "asked": true },
    });
    let mut all: MachinePool = serde_json::from_value(all).expect("it is a pool");
    let user_data = pool::user_data_hash(&all, None);
    all.status.get_or_insert_default().user_data_hash = Some(user_data);
    let model_hash = pool::model_hash(&all, &class);
    let instance = |index| pool::Instance {
        provider_id: format!("fake:///eu-1/i-{index:016x}").into(),
        id: format!("{index:05}"),
        name: format!("fleet-{index:05}"),
        node_name: format!("fleet-{index:05}"),
        state: InstanceState::Succeeded,
        model_hash: model_hash.clone(),
        fault: None,
    };
    let reading = pool::Reading {
        provider_id: "fake:///fleet".into(),
        cluster_id: String::new(),
        desired: machines,
        model_hash: model_hash.clone(),
        fault: None,
        instances: (0..machines).map(instance).collect(),
        absent: [].into(),
        began: Timestamp::UNIX_EPOCH,
    };
    let machines = reading.instances.iter().map(|it| member(&all, it)).collect();
    let mut known = pool::Known::default();
    known.view = pool::GroupView::Known(Arc::new(reading));
    let snapshot = pool::Snapshot {
        machines,
        pool: Arc::new(all.clone()),
        deleted: [].into(),
        created: [].into(),
        refused_machines: false,
        class: ClassView::Known(class),
        secret: SecretView::NotReferenced,
        configs: pool::ConfigsView::default(),
        data: pool::DataSecret::NotNamed,
        tokens: pool::TokenView::NotNeeded,
        token_secret: SecretText::new(String::new()),
        settings: Settings::default(),
        driver: DriverView::Ready(DriverFacts {
            kinds: KINDS.into_iter().collect(),
            ..DriverFacts::default()
        }),
        elsewhere: None,
        cluster: ClusterIds::only("fleet"),
        known,
        others: pool::Others::default(),
        operation: OperationView::Idle,
        operation_id: "id".into(),
        term: 1,
        now: Timestamp::UNIX_EPOCH,
    };
    let plan = pool::plan(&snapshot);
    assert_eq!((plan.writes.len(), plan.dispatch), (0, None));
    snapshot
}

fn member(all: &MachinePool, instance: &pool::Instance) -> Arc<Machine> {
    let mut new = pool::machine(all, instance);
    new.metadata.uid = Some(instance.name.clone());
    new.metadata.creation_timestamp = Some(Timestamp::UNIX_EPOCH.into());
    let status = json!({
        "currentStatus": { "phase": "Running", "lastUpdateTime": "2026-01-01T00:00:00Z" },
        "instance": {
            "id": instance.id, "name": instance.name, "provisioningState": "Succeeded",
            "latestModelApplied": true, "modelHash": instance.model_hash,
        },
    });
    new.status = serde_json::from_value(status).expect("it is a status");
    Arc::new(new)
}
