//! A pool with Machines and a group, set up by a test.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use ostler_api::{
    Machine, MachineClass, MachinePool, ProviderId, ProviderName,
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{InstanceState, MachinePhase},
    operation::{Finished, OperationView, Outcome, PoolRecord, Request, Success},
};
use ostler_lifecycle::{
    cluster::ClusterIds,
    operation::{Failure, SecretText},
    pool::{
        ConfigsView, DataSecret, Decision, Done, GroupView, Instance, Known, Others, Reading,
        Snapshot, TokenView, decide, machine, model_hash, user_data_hash,
    },
    snapshot::{ClassFacts, ClassView, DriverFacts, DriverView, SecretView, Settings},
};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct World {
    pub pool: MachinePool,
    pub machines: Vec<Machine>,
    /// `None`: there is none.
    pub group: Option<Reading>,
    pub absent_looks: u32,
    /// Ids of instances whose Machine the cache does not show yet.
    pub created: BTreeSet<ProviderId>,
    pub refused_machines: bool,
    pub others: Others,
    pub operation: OperationView,
    pub done: Option<Done>,
    pub driver: DriverView,
    /// The provider that has the group, if not the provider of the class.
    pub elsewhere: Option<ProviderName>,
    pub cluster: ClusterIds,
    pub secret: SecretView,
    pub configs: ConfigsView,
    pub data: DataSecret,
    pub tokens: TokenView,
    pub class: ClassFacts,
    pub now: Timestamp,
    pub made: u32,
}

pub fn class() -> ClassFacts {
    class_with(json!({ "size": 1 }))
}

/// A class with this provider spec.
pub fn class_with(spec: Value) -> ClassFacts {
    let class: MachineClass = serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c", "namespace": "default" },
        "provider": "fake.ostler.dev", "providerSpec": spec
    }))
    .unwrap();
    ClassFacts::of(&class)
}

pub fn driver(kinds: &[OperationKind]) -> DriverView {
    let kinds = kinds.iter().copied().collect();
    DriverView::Ready(DriverFacts { kinds, ..DriverFacts::default() })
}

pub const ALL: [OperationKind; 5] = [
    OperationKind::CreatePool,
    OperationKind::UpdatePool,
    OperationKind::DeletePool,
    OperationKind::GetPoolStatus,
    OperationKind::DeletePoolMachines,
];

impl World {
    /// A pool of so many instances, with nothing behind it yet.
    pub fn new(replicas: i32, more: Value) -> Self {
        let mut spec = json!({
            "replicas": replicas,
            "template": {
                "metadata": { "labels": { "role": "worker" } },
                "spec": { "class": { "kind": "MachineClass", "name": "c" } }
            }
        });
        json_patch::merge(&mut spec, &more);
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": {
                "name": "p", "namespace": "default", "uid": "pool-uid", "generation": 1,
                "finalizers": ["ostler.dev/machine-pool"]
            },
            "spec": spec
        }))
        .unwrap();
        Self {
            pool,
            machines: Vec::new(),
            group: None,
            absent_looks: 1,
            created: BTreeSet::new(),
            refused_machines: false,
            others: Others::default(),
            operation: OperationView::Idle,
            done: None,
            driver: driver(&ALL),
            elsewhere: None,
            cluster: ClusterIds::only("now"),
            secret: SecretView::NotReferenced,
            configs: ConfigsView::default(),
            data: DataSecret::NotNamed,
            tokens: TokenView::NotNeeded,
            class: class(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            made: 0,
        }
    }

    /// The same, with a group of the current model and as many Machines that run.
    pub fn running(replicas: i32, more: Value) -> Self {
        let mut world = Self::new(replicas, more);
        world.group = Some(Reading {
            provider_id: "fake:///group".into(),
            cluster_id: "now".to_owned(),
            desired: usize::try_from(replicas).unwrap(),
            model_hash: model_hash(&world.pool, &class()),
            fault: None,
            instances: Vec::new(),
            absent: Default::default(),
            began: world.now,
        });
        world.pool.status = Some(Default::default());
        let user_data_hash = user_data_hash(&world.pool, None);
        let status = world.pool.status.as_mut().unwrap();
        status.provider_id = Some("fake:///group".into());
        status.asked = true;
        status.user_data_hash = Some(user_data_hash);
        for _ in 0..replicas {
            world.boot();
        }
        world.adopt();
        world.run_all();
        world
    }

    /// The group makes one more instance.
    pub fn boot(&mut self) {
        self.made += 1;
        let group = self.group.as_mut().unwrap();
        group.instances.push(Instance {
            provider_id: format!("fake:///i-{}", self.made).into(),
            id: self.made.to_string(),
            name: format!("vm-{}", self.made),
            node_name: format!("node-{}", self.made),
            state: InstanceState::Succeeded,
            model_hash: group.model_hash.clone(),
            fault: None,
        });
    }

    /// Every instance without a Machine gets one.
    pub fn adopt(&mut self) {
        let reading = self.group.clone().unwrap();
        for instance in &reading.instances {
            let known = |it: &Machine| it.provider_id() == Some(&instance.provider_id);
            if !self.machines.iter().any(known) {
                let mut new = machine(&self.pool, instance);
                new.metadata.uid = Some(format!("uid-{}", instance.id));
                new.metadata.resource_version = Some("1".to_owned());
                let age = SignedDuration::from_secs(instance.id.parse().unwrap());
                new.metadata.creation_timestamp = Some((self.now + age).into());
                self.machines.push(new);
            }
        }
    }

    pub fn run_all(&mut self) {
        for machine in &mut self.machines {
            set_phase(machine, MachinePhase::Running);
        }
    }

    pub fn named(&mut self, name: &str) -> &mut Machine {
        self.machines.iter_mut().find(|it| it.name() == name).unwrap()
    }

    /// The deletion of this Machine was asked for, and its Node is drained.
    pub fn drain(&mut self, name: &str) {
        let now = self.now;
        let machine = self.named(name);
        machine.metadata.deletion_timestamp = Some(now.into());
        let mut status = serde_json::to_value(machine.status.clone().unwrap_or_default()).unwrap();
        status["step"] = json!("DeleteInstance");
        status["currentStatus"] = json!({ "phase": "Terminating" });
        machine.status = Some(serde_json::from_value(status).unwrap());
    }

    /// Another system says how many there are.
    pub fn scaled_by_others(mut self) -> Self {
        let by = ("cluster.x-k8s.io/replicas-managed-by".to_owned(), "autoscaler".to_owned());
        self.pool.metadata.annotations.get_or_insert_default().extend([by]);
        self
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            pool: Arc::new(self.pool.clone()),
            machines: self.machines.iter().cloned().map(Arc::new).collect(),
            deleted: Default::default(),
            created: self.created.clone(),
            refused_machines: self.refused_machines,
            class: ClassView::Known(self.class.clone()),
            secret: self.secret.clone(),
            configs: self.configs.clone(),
            data: self.data.clone(),
            tokens: self.tokens.clone(),
            token_secret: SecretText::new(format!("secret-of-{}", self.now.as_second())),
            settings: Settings::default(),
            driver: self.driver.clone(),
            elsewhere: self.elsewhere.clone(),
            cluster: self.cluster.clone(),
            known: Known::of(
                match &self.group {
                    Some(reading) => GroupView::Known(Arc::new(reading.clone())),
                    None => GroupView::Absent(self.absent_looks),
                },
                self.done.clone(),
            ),
            others: self.others.clone(),
            operation: self.operation.clone(),
            operation_id: "op-1".into(),
            term: 7,
            now: self.now,
        }
    }

    pub fn plan(&self) -> Decision {
        decide(&self.snapshot())
    }

    /// A pass whose status is written.
    pub fn pass(&mut self) -> Decision {
        let plan = self.plan();
        self.pool.status = Some(plan.status.clone());
        for (machine, instance) in &plan.instances {
            let machine = self.named(machine.name());
            let id = machine.instance_id().cloned();
            let status = machine.status.get_or_insert_default();
            status.instance = Some(Box::new(instance.clone()));
            status.instance_provider_id = id;
        }
        plan
    }

    /// The operation that was sent ended so.
    pub fn answer(&mut self, kind: OperationKind, outcome: Outcome) {
        self.answer_to("op-1", kind, outcome);
    }

    /// The operation of this id ended so.
    pub fn answer_to(&mut self, id: &str, kind: OperationKind, outcome: Outcome) {
        self.operation = OperationView::Finished(Finished {
            id: id.into(),
            provider: "fake.ostler.dev".into(),
            kind,
            idempotency_key: "k".into(),
            outcome,
            checkpoint: None,
        });
    }
}

pub fn record() -> PoolRecord {
    PoolRecord { provider_id: "fake:///group".into(), ..PoolRecord::default() }
}

pub fn set_phase(machine: &mut Machine, phase: MachinePhase) {
    machine.status.get_or_insert_default().current_status =
        Some(ostler_api::machine::CurrentStatus { phase: Some(phase), ..Default::default() });
}

pub fn request(plan: &Decision) -> Option<&Request> {
    plan.dispatch.as_ref().map(|dispatch| &dispatch.request)
}

pub fn failure(code: ErrorCode) -> Outcome {
    Err(Failure::new(code, Certainty::NotApplied, "no"))
}

/// The driver says that a running instance cannot get the change.
pub fn not_hot() -> Outcome {
    let failure = Failure::new(ErrorCode::FailedPrecondition, Certainty::NotApplied, "size");
    Err(Failure { reason: "NOT_HOT_UPDATABLE".to_owned(), ..failure })
}

pub fn victims(plan: &Decision) -> Vec<&str> {
    plan.delete.iter().map(|victim| victim.machine.name()).collect()
}

pub fn changed() -> Outcome {
    Ok(Success::PoolChanged(record()))
}
