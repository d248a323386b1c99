//! The world: carries plans out, and lets a driver answer when the test says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::{
    Machine, MachineClass, OperationId, ProviderIdComparison,
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{MachinePhase, MachineState, MachineStatus, MachineStep, WaitReason},
    names,
};
use ostler_lifecycle::{
    bootstrap::BootstrapView,
    cluster::ClusterIds,
    hint::HintView,
    hot_update::{ReviewView, SlotUse, SlotView},
    machine::{self, invariants},
    node::IdComparison,
    operation::{
        Dispatch, Failure, Finished, InFlight, InstanceRecord, OperationView, Place, Power,
        Request, SecretText, Success,
    },
    outage::ApiView,
    plan::{Event, EventReason, Next, Plan},
    record::record,
    replacement::Siblings,
    snapshot::{
        BootstrapToken, BudgetFacts, ClassFacts, ClassView, Fresh, NodeView, Observed, OwnPool,
        PodView, SecretView, Settings, Snapshot, TargetView, VolumesView,
    },
    unwritten::Unwritten,
};
use serde_json::json;

pub use crate::machine::objects::{UPSTREAM, class, edit_status, node, secret};
pub use crate::machine::pods::pod;
use crate::machine::record::check_kept;
use json_patch::merge;

pub const UID: &str = "11111111-2222-3333-4444-555555555555";
pub const PROVIDER_ID: &str = "fake:///i-1";
pub const NODE: &str = "node-1";

/// The instance in the infrastructure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Instance {
    pub initialized: bool,
    pub spec: String,
    /// The UID on the instance, if not the machine's; empty: no UID.
    pub foreign: Option<String>,
    /// The cluster id on the instance, if not the current one.
    pub cluster: Option<String>,
}

impl Instance {
    /// Whether a driver takes the instance for the requested one.
    fn is_meant(&self, named: &str, by_name: bool) -> bool {
        match self.foreign.as_deref() {
            None => true,
            Some("") => by_name,
            Some(_) => named == PROVIDER_ID,
        }
    }
}

#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "what a test sets")]
pub struct World {
    pub now: Timestamp,
    pub machine: Option<Machine>,
    pub class: Option<MachineClass>,
    pub class_view: Option<ClassView>,
    pub class_before: Option<ClassFacts>,
    pub secret: SecretView,
    pub bootstrap: BootstrapView,
    pub target: TargetView,
    pub node: NodeView,
    /// How the driver compares provider ids.
    pub compares: IdComparison,
    pub outdated: Option<String>,
    pub api: ApiView,
    pub siblings: Siblings,
    pub pods: Observed<Vec<PodView>>,
    pub volumes: Observed<Vec<String>>,
    pub claims: Observed<VolumesView>,
    pub can_evict: bool,
    pub binds_tokens: bool,
    /// Budgets of the protected pods.
    pub budgets: Vec<BudgetFacts>,
    /// The message of a driver that is not ready.
    pub not_ready: Option<&'static str>,
    /// The driver's names of volumes, by volume.
    pub volume_ids: BTreeMap<String, String>,
    pub token: Observed<BootstrapToken>,
    pub kinds: BTreeSet<OperationKind>,
    pub connected: bool,
    pub driver_version: String,
    /// Which process of the driver serves.
    pub driver_process: &'static str,
    pub by_name: bool,
    /// The driver's report on its infrastructure.
    pub list_lag: Option<Duration>,
    pub operation: OperationView,
    pub hint: Option<HintView>,
    pub review: ReviewView,
    pub slot: SlotView,
    pub holder: Option<String>,
    pub pool: OwnPool,
    pub settings: Settings,
    pub cluster: ClusterIds,
    /// What exists in the infrastructure.
    pub instances: Vec<Instance>,
    /// Whether the instance runs, as the driver says.
    pub power: Power,
    /// The driver finds other tags on the instance of the id than this machine's.
    pub not_ours: bool,
    /// How many creates the driver carried out.
    pub creates: usize,
    /// Everything that was sent, in order.
    pub sent: Vec<Dispatch>,
    /// The provider spec of the class when the last operation was sent: its revision is kept for the driver.
    pub spec_sent: String,
    pub events: Vec<Event>,
    /// Actions that the API server refuses, by name.
    pub fails: BTreeSet<&'static str>,
    /// Pods whose eviction is refused, by name.
    pub protected: BTreeSet<String>,
    pub cancelled: Vec<OperationId>,
    /// The text of every failure.
    pub says: &'static str,
    /// What the API does not have yet of the status.
    pub unwritten: Option<Unwritten>,
    /// When the last pass wants the next one.
    pub next: Next,
    ids: u32,
}

impl World {
    pub fn new() -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut machine: Machine = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "Machine",
            "metadata": { "name": "m1", "namespace": "default", "uid": UID, "generation": 1 },
            "spec": { "class": { "kind": "MachineClass", "name": "small" } }
        }))
        .unwrap();
        machine.metadata.creation_timestamp = Some(Time(now));
        Self {
            now,
            machine: Some(machine),
            class: Some(class(&json!({ "size": 1, "tags": { "a": "1" } }))),
            class_view: None,
            class_before: None,
            secret: secret(b"#!/bin/sh\njoin <<BOOTSTRAP_TOKEN>> as <<MACHINE_NAME>>"),
            bootstrap: BootstrapView::default(),
            target: TargetView::Watched,
            node: NodeView::Absent,
            compares: IdComparison {
                said: Some(ProviderIdComparison::Exact),
                ..IdComparison::default()
            },
            outdated: None,
            api: ApiView::default(),
            siblings: Siblings::default(),
            pods: Observed::Known(Vec::new()),
            volumes: Observed::Absent,
            claims: Observed::Known(VolumesView::default()),
            can_evict: true,
            binds_tokens: true,
            budgets: Vec::new(),
            volume_ids: BTreeMap::new(),
            token: Observed::Absent,
            kinds: OperationKind::ALL.into_iter().collect(),
            connected: true,
            not_ready: None,
            driver_version: "fake 1".to_owned(),
            driver_process: "p1",
            by_name: false,
            list_lag: None,
            operation: OperationView::Idle,
            hint: None,
            review: ReviewView::NoAnswer,
            slot: SlotView { has: SlotUse::None, ahead: 0, free: 1, limit: 1 },
            holder: None,
            pool: OwnPool::There,
            settings: Settings::default(),
            cluster: ClusterIds::only("ours"),
            instances: Vec::new(),
            power: Power::On,
            not_ours: false,
            creates: 0,
            sent: Vec::new(),
            spec_sent: String::new(),
            events: Vec::new(),
            fails: BTreeSet::new(),
            protected: BTreeSet::new(),
            cancelled: Vec::new(),
            says: "no",
            unwritten: None,
            next: Next::OnChange,
            ids: 0,
        }
    }

    /// A world whose machine runs.
    pub fn running() -> Self {
        let mut world = Self::new();
        world.settle();
        world.join();
        world.settle();
        assert_eq!(world.phase(), MachinePhase::Running);
        world
    }

    // --- what is seen ---

    pub fn machine(&self) -> &Machine {
        self.machine.as_ref().expect("the machine is gone")
    }

    pub fn status(&self) -> MachineStatus {
        self.machine().status.clone().unwrap_or_default()
    }

    pub fn phase(&self) -> MachinePhase {
        self.machine().phase()
    }

    pub fn step(&self) -> Option<MachineStep> {
        self.status().step
    }

    pub fn waits_for(&self) -> Option<WaitReason> {
        self.status().waiting_for.map(|wait| wait.reason)
    }

    pub fn last_state(&self) -> Option<MachineState> {
        self.status().last_operation.and_then(|last| last.state)
    }

    pub fn kinds_sent(&self) -> Vec<OperationKind> {
        self.sent.iter().map(Dispatch::kind).collect()
    }

    pub fn count(&self, kind: OperationKind) -> usize {
        self.sent.iter().filter(|one| one.kind() == kind).count()
    }

    pub fn happened(&self, reason: EventReason) -> bool {
        self.events.iter().any(|event| event.reason == reason)
    }

    pub fn applied(&self) -> Option<String> {
        let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC;
        self.machine().annotation(key).map(str::to_owned)
    }

    // --- what the test does ---

    pub fn later(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        if let OperationView::InFlight(flight) = &mut self.operation {
            flight.age += Duration::from_secs(seconds.try_into().unwrap_or_default());
        }
    }

    pub fn delete(&mut self) {
        let now = self.now;
        if self.machine().metadata.finalizers.is_none() {
            self.machine = None;
            return;
        }
        self.machine_mut().metadata.deletion_timestamp = Some(Time(now));
    }

    /// A client with upstream's types writes the status back: what they do not know is lost.
    pub fn erase_ours(&mut self) {
        edit_status(self, |status| status.retain(|key, _| UPSTREAM.contains(&key.as_str())));
    }

    /// A user puts our finalizer on the machine.
    pub fn hold(&mut self) {
        let name = names::finalizer::MACHINE.to_owned();
        self.machine_mut().metadata.finalizers.get_or_insert_default().push(name);
    }

    pub fn machine_mut(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("the machine is gone")
    }

    pub fn edit_class(&mut self, spec: serde_json::Value) {
        self.class.as_mut().unwrap().spec.provider_spec = spec;
    }

    /// The Node joins, healthy, as registered by the kubelet.
    pub fn join(&mut self) {
        let mut joined = node("True", self.now);
        joined.metadata.creation_timestamp = Some(Time(self.now));
        self.node = NodeView::Known(Arc::new(joined));
    }

    pub fn node_is(&mut self, ready: &str) {
        let mut changed = node(ready, self.now);
        if let NodeView::Known(old) = &self.node {
            changed.metadata = old.metadata.clone();
            changed.spec.clone_from(&old.spec);
        }
        self.node = NodeView::Known(Arc::new(changed));
    }

    pub fn node(&self) -> &Node {
        self.node.main().unwrap_or_else(|| panic!("no node: {:?}", self.node))
    }

    pub fn snapshot(&mut self) -> Snapshot {
        self.ids += 1;
        Snapshot {
            now: self.now,
            machine: Arc::new(self.machine().clone()),
            unwritten: self.unwritten.clone(),
            class_before: self.class_before.clone(),
            class: self.class_view.clone().unwrap_or_else(|| {
                self.class
                    .as_ref()
                    .map_or(ClassView::Missing, |class| ClassView::Known(ClassFacts::of(class)))
            }),
            elsewhere: self.elsewhere(),
            secret: self.secret.clone(),
            bootstrap: self.bootstrap.clone(),
            target: self.target.clone(),
            node: self.node.clone(),
            ids: self.compares.clone(),
            outdated: self.outdated.clone(),
            api: self.api.clone(),
            siblings: self.siblings.clone(),
            pods: self.pods.clone(),
            attached_volumes: self.volumes.clone(),
            volumes: self.claims.clone(),
            can_evict: self.can_evict,
            binds_tokens: self.binds_tokens,
            bootstrap_token: self.token.clone(),
            driver: self.driver(),
            operation: self.operation.clone(),
            hint: self.hint.clone(),
            review: self.review.clone(),
            slot: self.slot,
            provider_id_holder: self.holder.clone(),
            pool: self.pool,
            cluster: self.cluster.clone(),
            term: 1,
            fresh: Fresh {
                operation_id: format!("op-{}", self.ids).into(),
                token_secret: SecretText::new("0123456789abcdef".to_owned()),
            },
            settings: self.settings.clone(),
        }
    }

    /// One pass, as in the controllers. The dispatch is left in flight.
    pub fn pass(&mut self) -> Plan {
        let snapshot = self.snapshot();
        let plan = machine::plan(&snapshot);
        assert_eq!(invariants::check(&snapshot, &plan), Ok(()), "{plan:#?}");
        let performed = self.perform_all(&plan);
        let recorded = record(&snapshot, &plan, &performed, self.now);
        if let (Some(patch), Some(machine)) = (&recorded.status, &mut self.machine) {
            let stored = snapshot.stored_status().cloned().unwrap_or_default();
            let mut status = serde_json::to_value(stored).unwrap();
            merge(&mut status, patch);
            machine.status = Some(serde_json::from_value(status).unwrap());
        }
        if let (Some(kept), Some(machine)) = (&recorded.unwritten, &mut self.machine) {
            check_kept(kept);
            machine.status = Some(kept.status.clone());
        }
        self.next.clone_from(&recorded.next);
        assert!(!matches!(self.next, Next::Wait { until, .. } if until < self.now), "{plan:#?}");
        if recorded.proceed || recorded.status.is_some() {
            self.unwritten.clone_from(&recorded.unwritten);
        }
        if recorded.proceed {
            self.cancelled.extend(plan.cancel.clone());
            self.use_hint(plan.hint);
            if plan.acknowledge.is_some() {
                self.operation = OperationView::Idle;
            }
            if let Some(dispatch) = &plan.dispatch {
                self.sent.push(dispatch.clone());
                self.spec_sent = self.spec_of_class();
                self.operation = OperationView::InFlight(InFlight {
                    id: dispatch.id.clone(),
                    provider: dispatch.provider.clone(),
                    kind: dispatch.kind(),
                    idempotency_key: dispatch.idempotency_key.clone(),
                    age: Duration::ZERO,
                    cancelled: false,
                    progress: None,
                    stalled: false,
                    place: Place::Sent,
                });
            }
        }
        self.events.extend(recorded.events);
        plan
    }

    /// Passes, with an obedient driver, until nothing moves.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            if self.machine.is_none() {
                return;
            }
            let before = (self.machine.clone(), self.node.clone());
            let plan = self.pass();
            let works = matches!(self.operation, OperationView::InFlight(_));
            if works {
                self.answer();
            }
            let rests = before.0 == self.machine && before.1 == self.node;
            if !works && rests && plan.dispatch.is_none() && plan.acknowledge.is_none() {
                return;
            }
        }
        panic!("does not settle: {:#?}", self.status());
    }

    /// As [`Self::settle`], for a machine whose operation is answered first.
    pub fn settle_no_node(&mut self) {
        self.answer();
        self.settle();
    }

    /// Passes while pods refuse to go.
    pub fn settle_pods(&mut self) {
        for _ in 0..3 {
            self.pass();
        }
    }

    /// The driver carries out its last request, truthfully.
    pub fn answer(&mut self) {
        let outcome = self.carry_out();
        self.reply(outcome);
    }

    /// The driver fails the operation in flight without having done anything.
    pub fn refuse(&mut self, code: ErrorCode) {
        self.fail(code, Certainty::NotApplied);
    }

    pub fn fail(&mut self, code: ErrorCode, certainty: Certainty) {
        let text = self.says;
        self.reply(Err(Failure::new(code, certainty, text)));
    }

    pub fn reply(&mut self, outcome: Result<Success, Failure>) {
        let OperationView::InFlight(flight) = &self.operation else { panic!("nothing in flight") };
        self.operation = OperationView::Finished(Finished {
            id: flight.id.clone(),
            provider: flight.provider.clone(),
            kind: flight.kind,
            idempotency_key: flight.idempotency_key.clone(),
            outcome,
            checkpoint: None,
        });
    }

    /// The effect of the operation in flight.
    pub fn carry_out(&mut self) -> Result<Success, Failure> {
        let sent = self.sent.last().unwrap();
        let (request, by_name) = (sent.request.clone(), sent.adopt_by_name);
        let spec = self.spec_sent.clone();
        let missing = || Err(Failure::new(ErrorCode::NotFound, Certainty::NotApplied, "none"));
        let there = |named: &str| {
            self.instances.first().is_some_and(|instance| instance.is_meant(named, by_name))
        };
        let carried = self.carried();
        let strange = !carried.is_empty() && !self.cluster.has(carried);
        if (self.not_ours || strange) && !matches!(request, Request::VolumeIds { .. }) {
            return Err(Failure::not_ours(PROVIDER_ID, carried));
        }
        match request {
            Request::Create { provider_id, .. } => {
                let there = there(provider_id.as_str());
                self.creates += 1;
                match self.instances.first_mut() {
                    Some(instance) if there => (instance.foreign, instance.cluster) = (None, None),
                    Some(_) | None => {
                        let made = Instance { spec, ..Instance::default() };
                        self.instances.insert(0, made);
                    }
                }
                Ok(Success::Created(self.record()))
            }
            Request::Initialize { .. } => {
                let Some(instance) = self.instances.first_mut() else { return missing() };
                instance.initialized = true;
                Ok(Success::Initialized(Some(self.record())))
            }
            Request::Update { .. } => {
                let Some(instance) = self.instances.first_mut() else { return missing() };
                instance.spec = spec;
                Ok(Success::Updated { applied_paths: vec!["tags".to_owned()] })
            }
            Request::Delete { .. } => {
                let was_absent = self.instances.is_empty();
                self.instances.clear();
                Ok(Success::Deleted { was_absent })
            }
            Request::VolumeIds { specs } => Ok(Success::VolumeIds(self.named(specs))),
            Request::Status { provider_id } if there(provider_id.as_str()) => {
                Ok(Success::Read(self.record()))
            }
            Request::Status { .. } => missing(),
            Request::List
            | Request::Validate { .. }
            | Request::CreatePool { .. }
            | Request::UpdatePool { .. }
            | Request::DeletePool { .. }
            | Request::PoolStatus { .. }
            | Request::ListPools
            | Request::DeletePoolMachines { .. }
            | Request::UpdatePoolMachine { .. } => panic!("no Machine asks for it"),
        }
    }

    pub fn record(&self) -> InstanceRecord {
        let foreign = self.instances.first().and_then(|instance| instance.foreign.clone());
        let uid = if self.by_name { "" } else { UID };
        InstanceRecord {
            provider_id: PROVIDER_ID.into(),
            machine_uid: foreign.unwrap_or_else(|| uid.to_owned()).into(),
            cluster_id: self.carried().to_owned(),
            node_name: NODE.to_owned(),
            power: self.power,
            initialized: self.instances.first().map(|instance| instance.initialized),
            ..InstanceRecord::default()
        }
    }

    /// The cluster id on the instance, if that is not the one of today.
    fn carried(&self) -> &str {
        self.instances.first().and_then(|it| it.cluster.as_deref()).unwrap_or_default()
    }

    /// The core dies: unwritten state is lost.
    pub fn forget_unwritten(&mut self) {
        if let Some(lost) = self.unwritten.take() {
            self.machine_mut().status = lost.stored;
        }
    }

    /// The core dies and comes back; the driver keeps what it has.
    pub fn lose_operation(&mut self) {
        self.operation = OperationView::Idle;
    }
}

/// When a plan looks again, in seconds from now.
pub fn looks_again(world: &World, plan: &Plan) -> Option<i64> {
    match &plan.next {
        Next::Wait { until, .. } => Some(until.duration_since(world.now).as_secs()),
        Next::OnChange | Next::Done => None,
    }
}

/// A time so many seconds after another.
pub fn seconds(from: Timestamp, count: i64) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(count)).unwrap()
}

pub fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}
