//! Hot update on the whole stack, on a paused clock: edits of classes, half updates, crashes in
//! between, drivers that can do less, and how many at the same time.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use ostler_api::MachineClass;
use ostler_api::machine::{
    Machine, MachineConditionType, MachineOperationType, MachinePhase, MachineState, WaitReason,
};
use ostler_api::names::annotation;
use ostler_driver_fake::calls::Call;
use ostler_driver_fake::fault::Verb;
use ostler_driver_fake::spec::Resource;
use ostler_driver_fake::{FakeDriver, PROVIDER};
use ostler_driver_sdk::{
    ClassReview, CreateMachine, DeleteMachine, Deletion, Driver, DriverError, DriverInfo,
    GetMachineStatus, InitializeMachine, Instance, ListMachines, OptionalOperation, UpdateMachine,
    Updated, ValidateClass,
};
use ostler_tests::objects::{class, get, in_phase, machine, waits_for};
use ostler_tests::world::World;
use serde_json::{Value, json};

/// A spec with these tags on VM, network and disk.
fn spec(vm: &str, network: &str, disk: &str) -> Value {
    json!({
        "region": "local", "image": "fake-1.0",
        "tags": { "vm": { "k": vm }, "network": { "k": network }, "disk": { "k": disk } },
    })
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

async fn edit(world: &World, name: &str, spec: Value) {
    let api = Api::<MachineClass>::default_namespaced(world.client());
    // Replaces the spec as a whole, unlike a merge.
    let patch = json!([{ "op": "replace", "path": "/providerSpec", "value": spec }]);
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    api.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await.unwrap();
}

/// A world with running machines `m-0`, `m-1`, … of class `c`.
async fn running(count: usize, spec: &Value) -> World {
    let world = World::start().await;
    world.apply::<MachineClass>(class("c", spec)).await;
    make(&world, count).await;
    world
}

async fn make(world: &World, count: usize) {
    for index in 0..count {
        world.apply::<Machine>(machine(&format!("m-{index}"), "c")).await;
    }
    for index in 0..count {
        let name = format!("m-{index}");
        world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
    }
}

/// The values of tag `k` of VM, network and disk.
fn tags(world: &World, machine: &str) -> [String; 3] {
    let all = world.cloud().instances().unwrap();
    let instance = all.iter().find(|one| one.identity.machine_name == machine).unwrap();
    Resource::ALL.map(|part| instance.tags(part).tags.get("k").cloned().unwrap_or_default())
}

/// The machine has the spec of its class, by its own word.
fn has_applied(spec: &Value) -> impl Fn(Option<&Machine>) -> bool {
    let spec = spec.clone();
    move |machine: Option<&Machine>| {
        let Some(machine) = machine else { return false };
        let text = machine.annotation(annotation::LAST_APPLIED_PROVIDER_SPEC).unwrap_or_default();
        let status = machine.status.clone().unwrap_or_default();
        serde_json::from_str::<Value>(text).is_ok_and(|it| it == spec)
            && status.hot_update.is_none()
            && status.operation.is_none()
    }
}

fn last(machine: &Machine) -> (Option<MachineOperationType>, Option<MachineState>) {
    let last = machine.status.clone().and_then(|status| status.last_operation).unwrap_or_default();
    (last.type_, last.state)
}

fn failed_update(machine: Option<&Machine>) -> bool {
    let update = (Some(MachineOperationType::Update), Some(MachineState::Failed));
    machine.is_some_and(|machine| last(machine) == update)
}

fn refused(machine: Option<&Machine>) -> bool {
    condition(machine, &MachineConditionType::HotUpdateRefused).is_some()
}

fn condition(machine: Option<&Machine>, type_: &MachineConditionType) -> Option<String> {
    let status = machine?.status.as_ref()?;
    let found = status.conditions.iter().find(|one| one.type_ == type_.as_str())?;
    found.message.clone()
}

fn calls(world: &World, verb: Verb) -> Vec<Call> {
    world.calls().into_iter().filter(|call| call.operation == verb).collect()
}

async fn events(world: &World, reason: &str) -> Vec<Event> {
    let all = Api::<Event>::all(world.client()).list(&ListParams::default()).await.unwrap();
    all.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_edit_reaches_vm_network_and_disk_of_every_machine_and_keeps_tags_of_others() {
    let world = running(12, &spec("1", "1", "1")).await;
    let id = get(&world, "m-0").await.provider_id().unwrap().to_owned();
    for part in Resource::ALL {
        world.cloud().tag_as_stranger(id.as_str(), part, ("billing", "team-7")).unwrap();
    }
    let edited = spec("2", "1", "3");
    edit(&world, "c", edited.clone()).await;
    for index in 0..12 {
        let name = format!("m-{index}");
        world.until(&name, "updated", has_applied(&edited)).await;
        assert_eq!(tags(&world, &name), ["2", "1", "3"]);
    }
    assert_eq!(calls(&world, Verb::UpdateMachine).len(), 12);
    let all = world.cloud().instances().unwrap();
    let instance = all.iter().find(|one| id == *one.provider_id).unwrap();
    for part in Resource::ALL {
        assert_eq!(instance.tags(part).tags["billing"], "team-7", "{part:?}");
    }
    let update = (Some(MachineOperationType::Update), Some(MachineState::Successful));
    assert_eq!(last(&get(&world, "m-0").await), update);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_operation_says_update_processing_before_the_driver_is_called() {
    let slow = with(spec("1", "1", "1"), "latency", json!({ "update": "60s" }));
    let world = running(1, &slow).await;
    let edited = with(slow, "tags", json!({ "vm": { "k": "2" } }));
    edit(&world, "c", edited.clone()).await;
    let processing = (Some(MachineOperationType::Update), Some(MachineState::Processing));
    let begun = move |machine: Option<&Machine>| machine.is_some_and(|it| last(it) == processing);
    world.until("m-0", "Update/Processing", begun).await;
    assert_eq!(tags(&world, "m-0"), ["1", "1", "1"]);
    world.until("m-0", "updated", has_applied(&edited)).await;
    assert_eq!(tags(&world, "m-0"), ["2", "", ""]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_a_last_applied_spec_gets_the_spec_of_its_class() {
    let first = spec("1", "1", "1");
    let world = running(1, &first).await;
    let none =
        json!({ "metadata": { "annotations": { annotation::LAST_APPLIED_PROVIDER_SPEC: null } } });
    world.patch_machine("m-0", none).await;
    world.until("m-0", "updated", has_applied(&first)).await;
    assert_eq!(calls(&world, Verb::UpdateMachine).len(), 1);
    world.stop().await;
}

/// An update that changes the VM and then fails, again and again.
fn half(spec: Value) -> Value {
    with(spec, "faults", json!([{ "operation": "UpdateMachine", "applyPartially": 1 }]))
}

#[tokio::test(start_paused = true)]
async fn an_update_that_failed_half_way_and_was_taken_back_leaves_nothing_of_it() {
    let first = spec("1", "1", "1");
    let world = running(1, &first).await;
    edit(&world, "c", half(spec("2", "2", "2"))).await;
    world.until("m-0", "failed half way", failed_update).await;
    assert_eq!(tags(&world, "m-0"), ["2", "1", "1"], "edge case 1: neither spec describes it");
    edit(&world, "c", first.clone()).await;
    world.until("m-0", "as before", has_applied(&first)).await;
    assert_eq!(tags(&world, "m-0"), ["1", "1", "1"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_half_update_taken_back_while_the_core_was_dead_leaves_nothing_of_it() {
    let first = spec("1", "1", "1");
    let mut world = running(1, &first).await;
    edit(&world, "c", half(spec("2", "2", "2"))).await;
    world.until("m-0", "failed half way", failed_update).await;
    world.crash_core();
    edit(&world, "c", first.clone()).await;
    world.start_core().await;
    world.until("m-0", "as before", has_applied(&first)).await;
    assert_eq!(tags(&world, "m-0"), ["1", "1", "1"]);
    world.stop().await;
}

/// The update is done, and the core never hears of it.
fn unheard(spec: Value) -> Value {
    with(spec, "faults", json!([{ "operation": "UpdateMachine", "lostReply": true, "call": 1 }]))
}

async fn until_tagged(world: &World, wanted: [&str; 3]) {
    while tags(world, "m-0") != wanted {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_core_and_driver_in_mid_update_and_a_revert_meanwhile_leave_nothing_of_it() {
    let first = spec("1", "1", "1");
    let mut world = running(1, &first).await;
    edit(&world, "c", unheard(spec("2", "2", "2"))).await;
    until_tagged(&world, ["2", "2", "2"]).await;
    world.crash_core();
    world.crash_driver();
    edit(&world, "c", first.clone()).await;
    world.start_core().await;
    world.start_driver();
    world.until("m-0", "as before", has_applied(&first)).await;
    assert_eq!(tags(&world, "m-0"), ["1", "1", "1"], "edge case 2");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_driver_in_mid_update_is_followed_by_a_read_and_the_update_again() {
    let mut world = running(1, &spec("1", "1", "1")).await;
    let edited = unheard(spec("2", "2", "2"));
    edit(&world, "c", edited.clone()).await;
    until_tagged(&world, ["2", "2", "2"]).await;
    world.crash_driver();
    world.start_driver();
    world.until("m-0", "updated", has_applied(&edited)).await;
    assert_eq!(tags(&world, "m-0"), ["2", "2", "2"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_needs_new_instances_is_refused_whole_and_asked_about_once() {
    let first = spec("1", "1", "1");
    let world = running(20, &first).await;
    let mixed = with(spec("2", "2", "2"), "image", json!("fake-2.0"));
    edit(&world, "c", mixed).await;
    for index in 0..20 {
        world.until(&format!("m-{index}"), "refused", refused).await;
    }
    let shown = get(&world, "m-7").await;
    let text = condition(Some(&shown), &MachineConditionType::HotUpdateRefused).unwrap();
    assert!(text.contains("image") && text.contains("revision"), "{text}");
    assert_ne!(last(&shown).0, Some(MachineOperationType::Update));
    assert_eq!(tags(&world, "m-7"), ["1", "1", "1"]);
    assert!(calls(&world, Verb::UpdateMachine).is_empty(), "nothing was tried");
    // The class alone at the start and after the edit, and the edit once for all twenty.
    assert_eq!(calls(&world, Verb::ValidateClass).iter().filter(|it| it.class == "c").count(), 3);
    edit(&world, "c", first.clone()).await;
    for index in 0..20 {
        let name = format!("m-{index}");
        world.until(&name, "as before", has_applied(&first)).await;
        world.until(&name, "not refused", |machine: Option<&Machine>| !refused(machine)).await;
    }
    assert!(calls(&world, Verb::UpdateMachine).is_empty(), "back to what is applied");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_the_driver_finds_wrong_says_so_at_the_class_and_reaches_no_instance() {
    let world = running(1, &spec("1", "1", "1")).await;
    let wrong =
        with(spec("2", "2", "2"), "tags", json!({ "vm": { "ostler.dev/cluster": "mine" } }));
    edit(&world, "c", wrong).await;
    world.until("m-0", "InvalidSpec", waits_for(WaitReason::InvalidSpec)).await;
    assert!(calls(&world, Verb::UpdateMachine).is_empty());
    while events(&world, "ClassInvalid").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let said = events(&world, "ClassInvalid").await;
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].involved_object.name.as_deref(), Some("c"));
    assert!(said[0].message.as_deref().unwrap().contains("tags.vm"), "{said:?}");
    world.stop().await;
}

/// The fake driver with some optional verbs, and its calls.
struct Watched {
    fake: FakeDriver,
    offers: &'static [OptionalOperation],
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    updates: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    machines: Mutex<BTreeSet<String>>,
}

impl Driver for Watched {
    fn info(&self) -> DriverInfo {
        // As many as the fake: more than any limit here.
        let info = DriverInfo::new(PROVIDER).name("watched").max_in_flight(4096);
        info.offering(self.offers.iter().copied())
    }

    async fn create_machine(&self, request: CreateMachine) -> Result<Instance, DriverError> {
        self.fake.create_machine(request).await
    }

    async fn initialize_machine(&self, it: InitializeMachine) -> Result<Instance, DriverError> {
        self.fake.initialize_machine(it).await
    }

    async fn delete_machine(&self, request: DeleteMachine) -> Result<Deletion, DriverError> {
        self.fake.delete_machine(request).await
    }

    async fn get_machine_status(&self, it: GetMachineStatus) -> Result<Instance, DriverError> {
        self.fake.get_machine_status(it).await
    }

    async fn list_machines(&self, request: ListMachines) -> Result<Vec<Instance>, DriverError> {
        self.fake.list_machines(request).await
    }

    async fn validate_class(&self, request: ValidateClass) -> Result<ClassReview, DriverError> {
        self.fake.validate_class(request).await
    }

    async fn update_machine(&self, request: UpdateMachine) -> Result<Updated, DriverError> {
        let seen = &self.seen;
        seen.updates.fetch_add(1, Ordering::Relaxed);
        let now = seen.running.fetch_add(1, Ordering::Relaxed) + 1;
        seen.most.fetch_max(now, Ordering::Relaxed);
        seen.machines.lock().unwrap().insert(request.ctx.target().name.clone());
        let _left = Left(Arc::clone(seen));
        self.fake.update_machine(request).await
    }
}

/// Also when the operation is dropped.
struct Left(Arc<Seen>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Puts a driver with these verbs in the place of the fake one.
async fn watched(world: &mut World, offers: &'static [OptionalOperation]) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let fake = FakeDriver::new(world.cloud().clone());
    world.stop_driver().await;
    world.run_driver(Watched { fake, offers, seen: Arc::clone(&seen) });
    seen
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_cannot_update_is_shown_once_and_never_asked() {
    let mut world = running(3, &spec("1", "1", "1")).await;
    let seen = watched(&mut world, &[]).await;
    edit(&world, "c", spec("2", "2", "2")).await;
    for index in 0..3 {
        world.until(&format!("m-{index}"), "refused", refused).await;
    }
    tokio::time::sleep(Duration::from_mins(20)).await;
    edit(&world, "c", spec("3", "3", "3")).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(seen.updates.load(Ordering::Relaxed), 0);
    let shown = events(&world, "HotUpdateRefused").await;
    let said: Vec<_> = shown.iter().map(|it| (&it.involved_object.name, it.count)).collect();
    assert_eq!(said.len(), 3, "once a machine: {said:?}");
    world.stop_driver().await;
    world.start_driver();
    world.until("m-0", "updated", has_applied(&spec("3", "3", "3"))).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_validate_class_the_driver_itself_refuses_and_is_not_asked_again() {
    let first = spec("1", "1", "1");
    let mut world = running(1, &first).await;
    let seen = watched(&mut world, &[OptionalOperation::UpdateMachine]).await;
    edit(&world, "c", with(spec("2", "2", "2"), "machineType", json!("large"))).await;
    world.until("m-0", "refused", refused).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(seen.updates.load(Ordering::Relaxed), 1);
    let shown = get(&world, "m-0").await;
    let text = condition(Some(&shown), &MachineConditionType::HotUpdateRefused).unwrap();
    assert!(text.contains("machineType"), "{text}");
    assert_ne!(last(&shown).0, Some(MachineOperationType::Update));
    assert_eq!(tags(&world, "m-0"), ["1", "1", "1"]);
    let hot = spec("4", "4", "4");
    edit(&world, "c", hot.clone()).await;
    world.until("m-0", "updated", has_applied(&hot)).await;
    world.stop().await;
}

const ALL: &[OptionalOperation] =
    &[OptionalOperation::UpdateMachine, OptionalOperation::ValidateClass];

#[tokio::test(start_paused = true)]
async fn an_edit_on_a_thousand_machines_is_never_with_the_driver_more_often_than_the_budget_says() {
    const MACHINES: usize = 1_000;
    let slow = with(spec("1", "1", "1"), "latency", json!({ "update": "20s" }));
    let mut world = World::start().await;
    world.apply::<MachineClass>(class("c", &slow)).await;
    make(&world, MACHINES).await;
    let seen = watched(&mut world, ALL).await;
    let edited = with(slow, "tags", json!({ "vm": { "k": "2" } }));
    edit(&world, "c", edited.clone()).await;
    world.until("m-999", "waiting for its turn", waits_for(WaitReason::HotUpdateBudget)).await;
    let waiting = get(&world, "m-999").await.status.unwrap().waiting_for.unwrap();
    assert!(waiting.message.unwrap().starts_with("100 of class c"));
    // In the middle of it, the core dies; what runs at the driver goes on.
    tokio::time::sleep(Duration::from_secs(50)).await;
    world.crash_core();
    world.start_core().await;
    for index in 0..MACHINES {
        world.until(&format!("m-{index}"), "updated", has_applied(&edited)).await;
    }
    let most = seen.most.load(Ordering::Relaxed);
    assert_eq!(most, 100, "a tenth, and not less: the budget is used");
    assert_eq!(seen.machines.lock().unwrap().len(), MACHINES);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_update_always_fails_holds_no_other_up() {
    let first = spec("1", "1", "1");
    let world = running(10, &first).await;
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let one = json!({ "hotUpdate": { "maxParallel": 1 } });
    api.patch("c", &PatchParams::default(), &Patch::Merge(one)).await.unwrap();
    let fault = json!([{ "operation": "UpdateMachine", "machine": "m-0", "code": "Unavailable" }]);
    let edited = with(spec("2", "2", "2"), "faults", fault);
    edit(&world, "c", edited.clone()).await;
    for index in 1..10 {
        world.until(&format!("m-{index}"), "updated", has_applied(&edited)).await;
    }
    world.until("m-0", "failed", failed_update).await;
    assert_eq!(tags(&world, "m-0"), ["1", "1", "1"]);
    world.stop().await;
}
