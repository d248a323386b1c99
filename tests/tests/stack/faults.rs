//! Faults of the catalogue in `docs/protocol.md` that need the whole stack: what the core does, what
//! the driver does, and what is left behind.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use ostler_api::MachineClass;
use ostler_api::driver::OperationKind as Kind;
use ostler_api::machine::{Machine, MachinePhase, MachineStep, WaitReason};
use ostler_driver_sdk::{
    CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo, GetMachineStatus,
    Instance, ListMachines,
};
use ostler_proto::v1alpha1::{HeldOperation, HeldState, Verdict};
use ostler_server::{CoreOptions, DriverToken};
use ostler_tests::hostile::{Hostile, claim, hello};
use ostler_tests::objects::{
    at_step, class, delete, get, gone, in_phase, instances, machine, nodes, waits_for,
};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

/// A class whose creates take ten minutes.
fn slow() -> Value {
    json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "10m" } })
}

/// Of a provider of its own, with a token of its own.
const STRANGER: &str = "stranger.ostler.dev";

/// A world in which a stranger may dial in as well; its token is in the directory.
async fn with_a_stranger(directory: &Path) -> World {
    let file = directory.join("token");
    std::fs::write(&file, STRANGER).unwrap();
    let admit = move |options: &mut CoreOptions| {
        options.tokens.push(DriverToken {
            name: "stranger".to_owned(),
            providers: Some([STRANGER.to_owned()].into()),
            file: file.clone(),
        });
    };
    World::start_with(Setup::tuned(admit)).await
}

/// The stranger makes these claims, and gets neither class nor secret. Before leaving, the stranger reports all claims as done.
async fn stranger_claims(world: &World, claims: Vec<HeldOperation>) -> Vec<Verdict> {
    let channel = world.wire().connect().await.unwrap();
    let instance = "00000000-0000-4000-8000-00000000000f".to_owned();
    let hello = hello(STRANGER, instance, claims.clone());
    let mut stranger = Hostile::greet(channel, STRANGER, hello).await.unwrap();
    for claim in &claims {
        let class = claim.machine_class.clone().unwrap();
        assert!(!stranger.gets_class(class.clone()).await, "{claim:?}");
        assert!(!stranger.gets_secret(class, &claim.operation_id).await, "{claim:?}");
        stranger.complete(claim).await;
    }
    stranger.stay(Duration::from_secs(5)).await;
    stranger.welcome.verdicts.iter().map(ostler_proto::v1alpha1::HeldVerdict::verdict).collect()
}

async fn until_running(world: &World, name: &str) {
    world.until(name, "Running", in_phase(MachinePhase::Running)).await;
}

async fn assert_goes_and_leaves_nothing(world: &World, name: &str) {
    delete(world, name).await;
    world.until(name, "gone", gone).await;
    assert_eq!((instances(world), nodes(world).await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn f08_a_stranger_that_claims_a_machine_gets_nothing_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = with_a_stranger(directory.path()).await;
    world.stop_driver().await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "waits", waits_for(WaitReason::DriverUnavailable)).await;
    let claimed = get(&world, "m").await;
    let (create, update) = (format!("{}:c", claimed.uid()), format!("{}:u", claimed.uid()));
    let claims = vec![
        claim(&claimed, "made-up", (Kind::CreateMachine, &create), HeldState::Completed),
        claim(&claimed, "too", (Kind::UpdateMachine, &update), HeldState::Running),
    ];
    let verdicts = stranger_claims(&world, claims).await;
    assert_eq!(verdicts, [Verdict::Cancel, Verdict::Forget], "what runs goes first");
    assert_eq!(get(&world, "m").await.provider_id(), None);
    world.start_driver();
    until_running(&world, "m").await;
    let running = get(&world, "m").await;
    assert!(running.provider_id().unwrap().as_str().starts_with("fake:///"), "{running:?}");
    assert_ne!(running.node_name(), Some("attacker-node"));
    world.stop().await;
}

/// INV-3, across a crash of the core: the driver that was asked to delete is away, and a stranger says,
/// with everything that is written down of it, that it has done so.
#[tokio::test(start_paused = true)]
async fn f08_a_deletion_that_only_a_stranger_says_is_done_is_asked_of_the_driver() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = with_a_stranger(directory.path()).await;
    let latency = json!({ "delete": "10m" });
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": latency });
    world.apply::<MachineClass>(class("tough", &spec)).await;
    world.apply::<Machine>(machine("m", "tough")).await;
    until_running(&world, "m").await;
    delete(&world, "m").await;
    world.until("m", "being deleted", at_step(MachineStep::DeleteInstance)).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    world.crash_driver();
    world.crash_core();
    world.start_core().await;
    let deleted = get(&world, "m").await;
    let intent = deleted.status.as_ref().unwrap().operation.clone().unwrap();
    let (id, key) = (intent.id.as_str(), intent.idempotency_key.as_str());
    let claim = claim(&deleted, id, (Kind::DeleteMachine, key), HeldState::Completed);
    assert_eq!(stranger_claims(&world, vec![claim]).await, [Verdict::Forget]);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(get(&world, "m").await.has_finalizer(), "nothing was deleted");
    assert_eq!(instances(&world), 1);
    world.start_driver();
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f01_a_driver_that_crashes_while_an_instance_is_made_leaves_one() {
    let mut world = World::start().await;
    world.apply::<MachineClass>(class("slow", &slow())).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    world.crash_driver();
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.start_driver();
    until_running(&world, "m").await;
    assert_eq!(instances(&world), 1);
    assert_goes_and_leaves_nothing(&world, "m").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f02_a_core_that_crashes_while_an_instance_is_made_finds_it_again() {
    let mut world = World::start().await;
    world.apply::<MachineClass>(class("slow", &slow())).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "being made", at_step(MachineStep::CreateInstance)).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    world.crash_core();
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.start_core().await;
    until_running(&world, "m").await;
    assert_eq!(instances(&world), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f02_when_core_and_driver_crash_while_an_instance_is_made_there_is_one_in_the_end() {
    let mut world = World::start().await;
    world.apply::<MachineClass>(class("slow", &slow())).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    world.crash_core();
    world.crash_driver();
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.start_driver();
    world.start_core().await;
    until_running(&world, "m").await;
    assert_eq!(instances(&world), 1);
    assert_goes_and_leaves_nothing(&world, "m").await;
    world.stop().await;
}

/// The class says another place now.
async fn move_class(world: &World, region: &str) {
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    let moved = Patch::Merge(json!({ "providerSpec": { "region": region } }));
    classes.patch("slow", &PatchParams::default(), &moved).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_found_where_the_class_was_when_its_creation_began() {
    // Before the core dies, and after.
    let table: [(&[&str], &[&str]); 4] =
        [(&[], &["b"]), (&["b"], &[]), (&["b", "c"], &[]), (&["b", "c"], &["d"])];
    for (before, after) in table {
        let mut world = World::start().await;
        world.apply::<MachineClass>(class("slow", &slow())).await;
        world.apply::<Machine>(machine("m", "slow")).await;
        world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
        world.crash_driver();
        for region in before {
            move_class(&world, region).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        world.crash_core();
        for region in after {
            move_class(&world, region).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.start_driver();
        world.start_core().await;
        until_running(&world, "m").await;
        assert_eq!(instances(&world), 1, "{before:?} {after:?}");
        assert_goes_and_leaves_nothing(&world, "m").await;
        world.stop().await;
    }
}

/// A driver whose first create gets as far as a disk.
#[derive(Clone, Default)]
struct Careful {
    /// The checkpoint of each create.
    creates: Arc<Mutex<Vec<Option<String>>>>,
}

impl Driver for Careful {
    fn info(&self) -> DriverInfo {
        DriverInfo::new(ostler_driver_fake::PROVIDER)
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        let before = request.ctx.checkpoint().map(str::to_owned);
        self.creates.lock().unwrap().push(before.clone());
        if before.is_none() {
            request.ctx.progress_percent("Disk", 50, "made");
            request.ctx.save_checkpoint("disk-1");
            std::future::pending::<()>().await;
        }
        let target = request.ctx.target();
        Ok(Instance::new("fake:///careful").machine(&target.name, &target.uid))
    }

    async fn delete_machine(&self, _: DeleteMachine) -> Result<Deletion, DriverError> {
        Ok(Deletion::WasAbsent)
    }

    async fn get_machine_status(&self, _: GetMachineStatus) -> Result<Instance, DriverError> {
        Err(DriverError::not_found("there is none"))
    }

    async fn list_machines(&self, _: ListMachines) -> Result<Vec<Instance>, DriverError> {
        Ok(Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn f02_a_checkpoint_outlives_the_crash_of_core_and_driver_and_comes_with_the_next_create() {
    let mut world = World::start().await;
    world.stop_driver().await;
    let driver = Careful::default();
    world.run_driver(driver.clone());
    world.apply::<Machine>(machine("m", "fake")).await;
    let known = |machine: Option<&Machine>| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.last_known_state.as_deref()) == Some("disk-1")
    };
    world.until("m", "known by its checkpoint", known).await;
    world.crash_core();
    world.crash_driver();
    world.run_driver(driver.clone());
    world.start_core().await;
    let has_id = |machine: Option<&Machine>| {
        machine.is_some_and(|machine| machine.provider_id() == Some(&"fake:///careful".into()))
    };
    world.until("m", "made", has_id).await;
    let creates = driver.creates.lock().unwrap().clone();
    assert_eq!(creates, [None, Some("disk-1".to_owned())]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f03_results_that_are_lost_with_the_link_are_brought_again_and_nothing_is_made_twice() {
    let world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "3s" } });
    world.apply::<MachineClass>(class("quick", &spec)).await;
    for index in 0..20 {
        world.apply::<Machine>(machine(&format!("m-{index}"), "quick")).await;
    }
    // Now and then in the middle of everything.
    for millis in [2990, 11, 500, 3010, 700] {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        world.cut_links();
    }
    for index in 0..20 {
        until_running(&world, &format!("m-{index}")).await;
    }
    assert_eq!((instances(&world), nodes(&world).await), (20, 20));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f17_a_class_edited_while_an_instance_is_made_reaches_it_by_an_update() {
    let world = World::start().await;
    world.apply::<MachineClass>(class("edited", &slow())).await;
    world.apply::<Machine>(machine("m", "edited")).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let tags = json!({ "providerSpec": { "tags": { "vm": { "team": "blue" } } } });
    api.patch("edited", &PatchParams::default(), &Patch::Merge(tags)).await.unwrap();
    until_running(&world, "m").await;
    let updated = |machine: Option<&Machine>| {
        let key = ostler_api::names::annotation::LAST_APPLIED_PROVIDER_SPEC;
        let applied = machine.and_then(|machine| machine.annotation(key));
        applied.is_some_and(|spec| spec.contains("blue"))
    };
    world.until("m", "updated", updated).await;
    assert_eq!(instances(&world), 1);
    let instance = world.cloud().instances().unwrap().remove(0);
    assert!(format!("{instance:?}").contains("blue"), "{instance:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f18_a_machine_deleted_while_its_instance_is_made_leaves_nothing() {
    let world = World::start().await;
    world.apply::<MachineClass>(class("slow", &slow())).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "asked for", waits_for(WaitReason::DriverWorking)).await;
    assert_goes_and_leaves_nothing(&world, "m").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f19_an_instance_that_is_gone_after_a_success_is_made_again_but_not_within_two_minutes() {
    let world = World::start().await;
    let latency = json!({ "boot": "30m" });
    let spec = json!({ "region": "local", "image": "fake-1.0", "latency": latency });
    world.apply::<MachineClass>(class("sleepy", &spec)).await;
    world.apply::<Machine>(machine("m", "sleepy")).await;
    world.until("m", "made", at_step(MachineStep::JoinNode)).await;
    let shown = get(&world, "m").await.status.unwrap().conditions;
    let made = shown.iter().find(|one| one.type_ == "InstanceCreated").unwrap();
    let made = made.last_transition_time.clone().unwrap().0;
    let first = world.cloud().instances().unwrap().remove(0);
    world.cloud().remove(std::slice::from_ref(&first.provider_id)).unwrap();
    assert_eq!(instances(&world), 0);
    let another = |machine: Option<&Machine>| {
        machine.and_then(Machine::provider_id).is_some_and(|id| *id != *first.provider_id)
    };
    world.until("m", "made again", another).await;
    assert!(world.now().duration_since(made).as_secs() >= 120);
    assert_eq!(instances(&world), 1);
    assert_goes_and_leaves_nothing(&world, "m").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f20_without_a_driver_a_machine_waits_without_a_write_and_goes_on_when_one_comes() {
    let mut world = World::start().await;
    world.stop_driver().await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "without a driver", waits_for(WaitReason::DriverUnavailable)).await;
    let before = get(&world, "m").await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let after = get(&world, "m").await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(after.phase(), before.phase(), "no machine fails for want of a driver");
    world.start_driver();
    until_running(&world, "m").await;
    assert_eq!(instances(&world), 1);
    world.stop().await;
}
