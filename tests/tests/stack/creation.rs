//! Machines come into being on the whole stack: tokens, nodes, adoption and initialization, with
//! crashes in between.

#![expect(clippy::unwrap_used, reason = "tests")]

use ostler_api::Uid;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase, MachineStep, WaitReason};
use ostler_api::names::{annotation, label, tag, taint};
use ostler_driver_fake::cloud::Instance as Vm;
use ostler_driver_sdk::{
    CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo, GetMachineStatus,
    InitializeMachine, Instance, ListMachines, OptionalOperation,
};
use ostler_lifecycle::user_data::token_id;
use ostler_tests::objects::{
    at_step, class, delete, get, gone, in_phase, instances, machine, nodes, waits_for,
};
use ostler_tests::rights::Request;
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

fn spec(more: &Value) -> Value {
    let mut spec = json!({ "region": "local", "image": "fake-1.0" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Nothing is made of a class that could go while there are machines of it.
#[tokio::test(start_paused = true)]
async fn a_class_that_the_core_may_not_write_to_makes_nothing_and_the_missing_right_is_said() {
    let forbids: fn(&Request) -> bool =
        |asked| asked.verb == "patch" && asked.resource == "machineclasses";
    let world = World::start_with(Setup { forbids, ..Setup::default() }).await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "kept", waits_for(WaitReason::ClassNotHeld)).await;
    let waiting = get(&world, "m").await.status.unwrap().waiting_for.unwrap();
    let message = waiting.message.unwrap();
    assert!(message.contains("patch machineclasses"), "{message}");
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

async fn tokens(world: &World) -> Vec<Secret> {
    let api: Api<Secret> = Api::namespaced(world.client(), "kube-system");
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.into_iter()
        .filter(|it| it.type_.as_deref() == Some("bootstrap.kubernetes.io/token"))
        .collect()
}

fn expiry(token: &Secret) -> jiff::Timestamp {
    let data = &token.data.as_ref().unwrap()["expiration"].0;
    std::str::from_utf8(data).unwrap().parse().unwrap()
}

/// The secret of the example's classes, with user data that asks for a token.
async fn want_tokens(world: &World) {
    let api: Api<Secret> = Api::default_namespaced(world.client());
    let patch =
        json!({ "stringData": { "userData": "join <<BOOTSTRAP_TOKEN>> as <<MACHINE_NAME>>" } });
    api.patch("fake", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn patch(world: &World, name: &str, patch: Value) {
    let api: Api<Machine> = Api::default_namespaced(world.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn only(world: &World) -> Vm {
    let mut all = world.cloud().instances().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_token_lives_for_as_long_as_its_machine_may_join_and_not_longer() {
    let world = World::start().await;
    want_tokens(&world).await;
    let deaf = class("deaf", &spec(&json!({ "kubelet": { "join": "never" } })));
    world.apply::<MachineClass>(deaf).await;
    for name in ["fails", "goes"] {
        world.apply::<Machine>(machine(name, "deaf")).await;
        world.until(name, "made", at_step(MachineStep::JoinNode)).await;
    }
    let all = tokens(&world).await;
    assert_eq!(all.len(), 2);
    for token in &all {
        assert!(expiry(token).duration_since(world.now()).as_secs() >= 20 * 60);
    }
    // The operator extends the creation timeout: the token must last as long.
    patch(&world, "goes", json!({ "spec": { "creationTimeout": "2h" } })).await;
    world.until("fails", "Failed", in_phase(MachinePhase::Failed)).await;
    let left = tokens(&world).await;
    let name = format!("bootstrap-token-{}", token_id(get(&world, "goes").await.uid()));
    assert_eq!(left.len(), 1, "that of the failed machine is gone");
    assert_eq!(left[0].metadata.name.as_deref(), Some(name.as_str()));
    assert!(expiry(&left[0]).duration_since(world.now()).as_secs() > 90 * 60);
    delete(&world, "goes").await;
    world.until("goes", "gone", gone).await;
    assert!(tokens(&world).await.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_goes_when_its_machine_joins() {
    let world = World::start().await;
    want_tokens(&world).await;
    world
        .apply::<MachineClass>(class("slow", &spec(&json!({ "latency": { "boot": "5m" } }))))
        .await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "made", at_step(MachineStep::JoinNode)).await;
    assert_eq!(tokens(&world).await.len(), 1);
    let begun = get(&world, "m").await;
    assert!(begun.status.unwrap().bootstrap_token_id.is_some());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let bound = tokens(&world).await.pop().unwrap().metadata.annotations.unwrap();
    let node = get(&world, "m").await.node_name().map(str::to_owned);
    assert_eq!(bound.get(annotation::TOKEN_NODE), node.as_ref(), "it has not joined by now");
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    assert!(tokens(&world).await.is_empty());
    assert_eq!(get(&world, "m").await.status.unwrap().bootstrap_token_id, None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_id_that_somebody_else_has_is_left_alone() {
    let mut world = World::start().await;
    want_tokens(&world).await;
    world.stop_driver().await;
    world
        .apply::<MachineClass>(class("deaf", &spec(&json!({ "kubelet": { "join": "never" } }))))
        .await;
    world.apply::<Machine>(machine("m", "deaf")).await;
    world.until("m", "without a driver", waits_for(WaitReason::DriverUnavailable)).await;
    let first = token_id(get(&world, "m").await.uid());
    let api: Api<Secret> = Api::namespaced(world.client(), "kube-system");
    let theirs: Secret = serde_json::from_value(json!({
        "metadata": { "name": format!("bootstrap-token-{first}") },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": { "token-id": first, "token-secret": "somebodyelses000" },
    }))
    .unwrap();
    api.create(&PostParams::default(), &theirs).await.unwrap();
    world.start_driver();
    world.until("m", "made", at_step(MachineStep::JoinNode)).await;
    let mine = get(&world, "m").await.status.unwrap().bootstrap_token_id.unwrap();
    assert_ne!(mine, first);
    assert_eq!(tokens(&world).await.len(), 2);
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    let left = tokens(&world).await;
    assert_eq!(left.len(), 1);
    let data = left[0].data.as_ref().unwrap();
    assert_eq!(data["token-secret"].0, b"somebodyelses000");
    world.stop().await;
}

/// Takes the machine out of the API as a restore does that brings it back under a new UID; its
/// instance stays.
async fn forget(world: &mut World, name: &str) {
    world.stop_core().await;
    patch(world, name, json!({ "metadata": { "finalizers": null } })).await;
    delete(world, name).await;
    world.until(name, "gone", gone).await;
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_restored_cluster_keep_their_instances_which_get_the_new_uid() {
    let mut world = World::start().await;
    for name in ["bare", "whole"] {
        world.apply::<Machine>(machine(name, "fake")).await;
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    let before: Vec<String> =
        world.cloud().instances().unwrap().into_iter().map(|it| it.provider_id).collect();
    let old = [get(&world, "bare").await, get(&world, "whole").await];
    for machine in &old {
        forget(&mut world, machine.name()).await;
        let mut restored = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": machine.name(), "namespace": "default" },
            "spec": machine.spec,
        });
        restored["metadata"]["labels"] = json!(machine.metadata.labels);
        world.apply::<Machine>(restored).await;
        if machine.name() == "whole" {
            let api: Api<Machine> = Api::default_namespaced(world.client());
            let status = json!({ "status": machine.status });
            api.patch_status("whole", &PatchParams::default(), &Patch::Merge(status))
                .await
                .unwrap();
        }
    }
    world.start_core().await;
    for machine in &old {
        let name = machine.name();
        world
            .until(name, "adopted", |machine: Option<&Machine>| {
                machine.is_some_and(|machine| {
                    let status = machine.status.as_ref();
                    machine.phase() == MachinePhase::Running
                        && status.and_then(|it| it.instance_uid.as_ref().map(Uid::as_str))
                            == Some(machine.uid())
                })
            })
            .await;
        let now = get(&world, name).await;
        assert_eq!(now.provider_id(), machine.provider_id());
        assert_ne!(now.uid(), machine.uid());
        let vm = world.cloud().instance(now.provider_id().unwrap().as_str()).unwrap().unwrap();
        assert_eq!(vm.vm.tags[tag::MACHINE_UID], now.uid());
        assert_eq!(vm.identity.machine_uid, now.uid());
    }
    let after: Vec<String> =
        world.cloud().instances().unwrap().into_iter().map(|it| it.provider_id).collect();
    assert_eq!(after, before, "nothing was made anew");
    for machine in &old {
        delete(&world, machine.name()).await;
        world.until(machine.name(), "gone", gone).await;
    }
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instances_of_machine_controller_manager_are_adopted_by_name_where_the_class_says_so() {
    let mut world = World::start().await;
    let tags = json!({ "tags": { "vm": { "kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1" } } });
    world.apply::<MachineClass>(class("old", &spec(&tags))).await;
    world.apply::<Machine>(machine("m", "old")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    // As it is where machine-controller-manager ran: no tag and no status of ours.
    let before = get(&world, "m").await;
    forget(&mut world, "m").await;
    let vm = only(&world);
    let bare = {
        let mut bare = vm.clone();
        bare.identity.cluster_id = String::new();
        bare.identity.machine_uid = String::new();
        for tags in [&mut bare.vm, &mut bare.network, &mut bare.disk] {
            tags.tags.retain(|key, _| !key.starts_with("ostler.dev/"));
        }
        bare
    };
    world.cloud().plant(vec![bare]).unwrap();
    let mut theirs = machine("m", "old");
    theirs["spec"]["providerID"] = json!(before.provider_id());
    theirs["metadata"]["labels"] = json!({ label::NODE: "m" });
    world.apply::<Machine>(theirs).await;
    let api: Api<Machine> = Api::default_namespaced(world.client());
    let status = json!({ "status": { "currentStatus": { "phase": "Running" } } });
    api.patch_status("m", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.start_core().await;
    // Without the annotation it is not touched.
    let refused = |machine: Option<&Machine>| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.is_some_and(|it| it.conditions.iter().any(|one| one.type_ == "InstanceAdopted"))
    };
    world.until("m", "not adopted", refused).await;
    assert!(!only(&world).vm.tags.contains_key(tag::MACHINE_UID));
    let classes: Api<MachineClass> = Api::default_namespaced(world.client());
    let note = json!({ "metadata": { "annotations": { annotation::ADOPT_BY_NAME: "true" } } });
    classes.patch("old", &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
    let adopted = |machine: Option<&Machine>| {
        machine.is_some_and(|machine| {
            let status = machine.status.as_ref();
            status.and_then(|it| it.instance_uid.as_ref().map(Uid::as_str)) == Some(machine.uid())
        })
    };
    world.until("m", "adopted", adopted).await;
    let now = get(&world, "m").await;
    let adopted = only(&world);
    assert_eq!(adopted.provider_id, vm.provider_id);
    assert_eq!(adopted.vm.tags[tag::MACHINE_UID], now.uid());
    assert_eq!(adopted.disk.tags[tag::CLUSTER_ID], vm.disk.tags[tag::CLUSTER_ID]);
    assert_eq!(now.phase(), MachinePhase::Running);
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_carries_its_identity_from_its_first_moment() {
    let world = World::start().await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let (machine, vm) = (get(&world, "m").await, only(&world));
    for tags in [&vm.vm.tags, &vm.network.tags, &vm.disk.tags] {
        assert_eq!(tags[tag::MACHINE_UID], machine.uid());
        assert_eq!(tags[tag::MACHINE_NAME], "m");
        assert_eq!(tags[tag::CLUSTER_ID], vm.identity.cluster_id);
    }
    world.stop().await;
}

/// A driver that names no nodes and says nothing of initialization in its records, as many do.
#[derive(Clone, Default)]
struct Terse {
    made: Arc<Mutex<Option<String>>>,
    initialize: Arc<Mutex<Vec<Behaviour>>>,
    initialized: Arc<Mutex<u32>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Hang,
    Fail,
}

impl Terse {
    fn record(&self) -> Result<Instance, DriverError> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        made.map(Instance::new).ok_or_else(|| DriverError::not_found("there is none"))
    }
}

impl Driver for Terse {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(ostler_driver_fake::PROVIDER)
            .offering([OptionalOperation::InitializeMachine])
    }

    async fn create_machine(&self, _: CreateMachine) -> Result<Instance, DriverError> {
        *self.made.lock().unwrap() = Some("fake:///terse".to_owned());
        self.record()
    }

    async fn initialize_machine(&self, _: InitializeMachine) -> Result<Instance, DriverError> {
        let next = self.initialize.lock().unwrap().pop();
        match next {
            Some(Behaviour::Hang) => std::future::pending().await,
            Some(Behaviour::Fail) => return Err(DriverError::uninitialized("no prefix yet")),
            None => {}
        }
        *self.initialized.lock().unwrap() += 1;
        self.record()
    }

    async fn delete_machine(&self, _: DeleteMachine) -> Result<Deletion, DriverError> {
        let made = self.made.lock().unwrap().take();
        Ok(if made.is_some() { Deletion::Deleted } else { Deletion::WasAbsent })
    }

    async fn get_machine_status(&self, _: GetMachineStatus) -> Result<Instance, DriverError> {
        self.record()
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        Ok(Vec::new())
    }
}

/// A healthy Node with the startup taint, as a kubelet registers it.
async fn register(world: &World, name: &str) {
    let api: Api<Node> = Api::all(world.client());
    let taint =
        json!({ "key": "node.machine.sapcloud.io/instance-not-ready", "effect": "NoSchedule" });
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": name }, "spec": { "taints": [taint] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }))
    .unwrap();
    api.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn is_tainted(world: &World, name: &str) -> bool {
    let node = Api::<Node>::all(world.client()).get(name).await.unwrap();
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.iter().any(|one| one.key == taint::INSTANCE_NOT_READY)
}

#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_joins_the_machine_of_its_name() {
    let mut world = World::start().await;
    world.stop_driver().await;
    world.run_driver(Terse::default());
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "made", waits_for(WaitReason::NodeNotJoined)).await;
    register(&world, "m").await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    assert_eq!(get(&world, "m").await.node_name(), Some("m"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_there_before_is_not_taken_for_that_of_a_new_machine() {
    let mut world = World::start().await;
    world.stop_driver().await;
    world.run_driver(Terse::default());
    register(&world, "m").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "in the way", waits_for(WaitReason::NodeStale)).await;
    assert!(is_tainted(&world, "m").await, "it was not touched");
    world.until("m", "Failed", in_phase(MachinePhase::Failed)).await;
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert!(Api::<Node>::all(world.client()).get_opt("m").await.unwrap().is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn initialization_is_asked_for_until_it_is_done_whoever_dies_meanwhile() {
    for (core, driver) in [(true, false), (false, true), (true, true)] {
        let mut world = World::start().await;
        world.stop_driver().await;
        let terse = Terse::default();
        // The first attempt never ends, the second fails, the third succeeds.
        *terse.initialize.lock().unwrap() = vec![Behaviour::Fail, Behaviour::Hang];
        world.run_driver(terse.clone());
        world.apply::<Machine>(machine("m", "fake")).await;
        world.until("m", "being initialized", at_step(MachineStep::InitializeInstance)).await;
        register(&world, "m").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        if core {
            world.crash_core();
        }
        if driver {
            world.crash_driver();
            world.run_driver(terse.clone());
        }
        if core {
            world.start_core().await;
        }
        let failed = |machine: Option<&Machine>| {
            let last = machine.and_then(|it| it.status.as_ref()?.last_operation.as_ref());
            last.is_some_and(|last| {
                last.description.as_deref() == Some("InstanceInitialization")
                    && last.error_code.as_deref() == Some("Uninitialized")
            })
        };
        world.until("m", "failing", failed).await;
        assert!(is_tainted(&world, "m").await, "the node is ready, the instance is not");
        world.until("m", "Running", in_phase(MachinePhase::Running)).await;
        assert_eq!(*terse.initialized.lock().unwrap(), 1, "core {core}, driver {driver}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!is_tainted(&world, "m").await);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_name_is_too_long_for_a_label_runs_and_goes() {
    let world = World::start().await;
    let name = "b".repeat(64);
    world.apply::<Machine>(machine(&name, "fake")).await;
    world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
    assert_eq!((instances(&world), nodes(&world).await), (1, 1));
    delete(&world, &name).await;
    world.until(&name, "gone", gone).await;
    assert_eq!((instances(&world), nodes(&world).await), (0, 0));
    world.stop().await;
}
