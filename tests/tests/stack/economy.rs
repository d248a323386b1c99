//! What a fleet costs the API server and the core, in counters: no times.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::{MachineClass, MachineDeployment, MachinePool};
use ostler_sessions::Rate;
use ostler_tests::objects::{class, gone, in_phase, machine, waits_for};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

/// Machines of each kind.
const MANY: u32 = 60;

async fn world() -> World {
    World::start_with(Setup::tuned(|options| options.settings.controllers = "*".parse().unwrap()))
        .await
}

fn deployment() -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": { "name": "fleet", "namespace": "default" },
        "spec": {
            "replicas": MANY,
            "selector": { "matchLabels": { "app": "fleet" } },
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": "10%", "maxUnavailable": 0 },
            },
            "template": {
                "metadata": { "labels": { "app": "fleet" } },
                "spec": { "class": { "kind": "MachineClass", "name": "fake" } },
            },
        },
    })
}

fn is_complete(it: Option<&MachineDeployment>) -> bool {
    it.is_some_and(|it| {
        let status = it.status.clone().unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        counts.iter().all(|count| u32::try_from(*count) == Ok(MANY))
            && status.observed_generation == it.metadata.generation
    })
}

async fn until(world: &World, what: &str, condition: impl Condition<MachineDeployment>) {
    let api = Api::<MachineDeployment>::default_namespaced(world.client());
    let waited = await_condition(api, "fleet", condition);
    let met = tokio::time::timeout(Duration::from_hours(3), waited).await;
    met.unwrap_or_else(|_| panic!("the deployment was never {what}")).unwrap();
    // On a paused clock: whatever follows from that has happened.
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// The newest revision of the API server: every write of any client makes one.
async fn revision(world: &World) -> f64 {
    let api = Api::<ConfigMap>::default_namespaced(world.client());
    let list = api.list(&ListParams::default()).await.unwrap();
    list.metadata.resource_version.unwrap().parse().unwrap()
}

/// The sum of the counters of the core whose line begins like this.
fn counted(world: &World, name: &str) -> f64 {
    let metrics = world.metrics();
    let values = metrics.lines().filter(|line| line.starts_with(name));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn passes(world: &World, queue: &str) -> f64 {
    counted(world, &format!("mcm_workqueue_work_duration_seconds_count{{name=\"{queue}\""))
}

fn writes(world: &World, kind: &str) -> f64 {
    counted(world, &format!("ostler_api_writes_total{{kind=\"{kind}\""))
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_deployment_costs_at_most_two_writes_more_than_a_bare_one() {
    let world = world().await;
    let before = revision(&world).await;
    let names: Vec<String> = (0..MANY).map(|index| format!("bare-{index}")).collect();
    for name in &names {
        world.apply::<Machine>(machine(name, "fake")).await;
    }
    for name in &names {
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bare = revision(&world).await - before;

    let before = revision(&world).await;
    world.apply::<MachineDeployment>(deployment()).await;
    until(&world, "complete", is_complete).await;
    let of_fleet = revision(&world).await - before;

    let more = (of_fleet - bare) / f64::from(MANY);
    assert!(more <= 2.0, "{more} more: {of_fleet} against {bare} for {MANY} machines");
    world.stop().await;
}

/// gardener/gardener#11879: a controller that came to a deployment too seldom, when there were many of them.
#[tokio::test(start_paused = true)]
async fn many_deployments_are_a_few_passes_for_each_11879() {
    let world = world().await;
    for number in 0..MANY {
        let mut one = deployment();
        one["metadata"]["name"] = json!(format!("fleet-{number}"));
        one["spec"]["replicas"] = json!(1);
        let labels = json!({ "app": format!("fleet-{number}") });
        one["spec"]["selector"]["matchLabels"] = labels.clone();
        one["spec"]["template"]["metadata"]["labels"] = labels;
        world.apply::<MachineDeployment>(one).await;
    }
    let api = Api::<MachineDeployment>::default_namespaced(world.client());
    for number in 0..MANY {
        let available = |it: Option<&MachineDeployment>| {
            it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.available_replicas == 1)
        };
        let name = format!("fleet-{number}");
        let waited = await_condition(api.clone(), &name, available);
        tokio::time::timeout(Duration::from_mins(2), waited).await.unwrap().unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (of_sets, of_deployments) =
        (passes(&world, "machineset"), passes(&world, "machinedeployment"));
    let most = f64::from(MANY) * 12.0;
    assert!(of_sets <= most && of_deployments <= most, "{of_sets}, {of_deployments}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_changes_of_machines_are_few_passes_and_few_writes_of_status() {
    let world = world().await;
    world.apply::<MachineDeployment>(deployment()).await;
    until(&world, "complete", is_complete).await;
    let seen = |world: &World| {
        let of_sets = (passes(world, "machineset"), writes(world, "MachineSet"));
        (of_sets, (passes(world, "machinedeployment"), writes(world, "MachineDeployment")))
    };
    let made = seen(&world);
    // Each machine was created, changed its phase twice, and got a Node, with at least one event for each.
    let most = f64::from(MANY) / 4.0;
    let ((set_passes, set_writes), (passes, writes)) = made;
    assert!(set_passes <= most && set_writes <= most, "{made:?}");
    assert!(passes <= most && writes <= most, "{made:?}");

    let edit = json!({ "spec": { "template": { "metadata": { "labels": { "new": "yes" } } } } });
    let api = Api::<MachineDeployment>::default_namespaced(world.client());
    api.patch("fleet", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    until(&world, "rolled", is_complete).await;
    let rolled = seen(&world);
    let ((all_set_passes, all_set_writes), (all_passes, all_writes)) = rolled;
    let most = f64::from(MANY) * 1.5;
    assert!(all_set_passes - set_passes <= most, "{rolled:?} after {made:?}");
    assert!(all_set_writes - set_writes <= most, "{rolled:?} after {made:?}");
    assert!(all_passes - passes <= most, "{rolled:?} after {made:?}");
    assert!(all_writes - writes <= most, "{rolled:?} after {made:?}");
    world.stop().await;
}

/// Events that the core wrote.
fn events(world: &World) -> f64 {
    counted(world, "ostler_events_written_total")
}

/// A class whose driver answers a create with an instance that need not be initialized, beside that of the world.
async fn with_plain_class(setup: Setup) -> World {
    let world = World::start_with(setup).await;
    let plain = class("plain", &json!({ "region": "local", "image": "fake-1.0" }));
    world.apply::<MachineClass>(plain).await;
    for of_class in CLASSES {
        // The first Machine of a class costs more than the next ones.
        let name = format!("first-{of_class}");
        world.apply::<Machine>(machine(&name, of_class)).await;
        world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    world
}

/// The second one asks for InitializeMachine.
const CLASSES: [&str; 2] = ["plain", "fake"];

#[tokio::test(start_paused = true)]
async fn the_life_of_a_machine_costs_twelve_writes_with_its_events_initialized_or_not() {
    let world = Box::pin(with_plain_class(Setup::default())).await;
    let seen = || (counted(&world, "ostler_api_writes_total"), events(&world));
    let machines = Api::<Machine>::default_namespaced(world.client());
    for of_class in CLASSES {
        let name = format!("m-{of_class}");
        let before = seen();
        world.apply::<Machine>(machine(&name, of_class)).await;
        world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let up = seen();
        machines.delete(&name, &DeleteParams::default()).await.unwrap();
        world.until(&name, "gone", gone).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let down = seen();
        assert_eq!((up.0 - before.0, up.1 - before.1), (6.0, 1.0), "{of_class}");
        assert_eq!((down.0 - up.0, down.1 - up.1), (4.0, 1.0), "{of_class}");
    }
    world.stop().await;
}

/// The writes of the core: `Kind verb`, and how many.
fn written(world: &World) -> BTreeMap<String, u32> {
    let mut written = BTreeMap::new();
    for line in world.metrics().lines() {
        let Some(rest) = line.strip_prefix("ostler_api_writes_total{kind=\"") else { continue };
        let mut parts = rest.split('"');
        let (kind, verb) = (parts.next().unwrap(), parts.nth(1).unwrap());
        let count: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *written.entry(format!("{kind} {verb}")).or_default() += count;
    }
    written
}

/// What a change of a user makes the core write, once nothing else follows from it.
async fn written_after(world: &World, change: impl Future<Output = ()>) -> Vec<(String, u32)> {
    let before = written(world);
    change.await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let more = |(write, count): (String, u32)| {
        let more = count - before.get(&write).copied().unwrap_or_default();
        (more > 0).then_some((write, more))
    };
    written(world).into_iter().filter_map(more).collect()
}

async fn patch_fleet(world: &World, patch: Value) {
    let api = Api::<MachineDeployment>::default_namespaced(world.client());
    api.patch("fleet", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn counts(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|(write, count)| ((*write).to_owned(), *count)).collect()
}

/// ARCHITECTURE.md has these numbers.
#[tokio::test(start_paused = true)]
async fn a_scale_up_a_scale_down_and_a_rollout_step_have_their_writes() {
    let world = world().await;
    let mut one = deployment();
    one["spec"]["replicas"] = json!(1);
    world.apply::<MachineDeployment>(one).await;
    crate::pools::rest().await;

    let scaled = json!({ "spec": { "replicas": 2 } });
    let up = [
        ("Machine create", 1),
        ("Machine patch", 2),
        ("Machine patch_status", 1),
        ("MachineDeployment patch_status", 4),
        ("MachineSet patch", 1),
        ("MachineSet patch_status", 3),
        ("Node patch", 1),
        ("Secret create", 1),
        ("Secret delete", 1),
    ];
    assert_eq!(written_after(&world, patch_fleet(&world, scaled)).await, counts(&up));

    let scaled = json!({ "spec": { "replicas": 1 } });
    let down = [
        ("Machine delete", 1),
        ("Machine patch", 1),
        ("Machine patch_status", 1),
        ("MachineDeployment patch_status", 3),
        ("MachineSet patch", 1),
        ("MachineSet patch_status", 3),
        ("Node delete", 1),
        ("Node patch", 1),
    ];
    assert_eq!(written_after(&world, patch_fleet(&world, scaled)).await, counts(&down));

    let template = json!({ "metadata": { "labels": { "app": "fleet", "new": "yes" } } });
    let edited = json!({ "spec": { "template": template } });
    let rolled = [
        ("Machine create", 1),
        ("Machine delete", 1),
        ("Machine patch", 3),
        ("Machine patch_status", 2),
        ("MachineDeployment patch", 1),
        ("MachineDeployment patch_status", 6),
        ("MachineSet create", 1),
        ("MachineSet patch", 3),
        ("MachineSet patch_status", 6),
        ("Node delete", 1),
        ("Node patch", 5),
        ("Secret create", 1),
        ("Secret delete", 1),
    ];
    assert_eq!(written_after(&world, patch_fleet(&world, edited)).await, counts(&rolled));
    world.stop().await;
}

/// ARCHITECTURE.md has these numbers.
#[tokio::test(start_paused = true)]
async fn a_pool_that_scales_in_by_one_has_its_writes() {
    let world = crate::pools::start().await;
    world.apply::<MachinePool>(crate::pools::pool("p", 2)).await;
    crate::pools::until_runs(&world, 2).await;
    crate::pools::rest().await;
    let down = [
        ("Machine delete", 1),
        ("Machine patch", 2),
        ("Machine patch_status", 1),
        ("MachinePool patch_status", 6),
        ("Node delete", 1),
        ("Node patch", 1),
    ];
    let scaled = crate::pools::scale(&world, 1);
    assert_eq!(written_after(&world, scaled).await, counts(&down));
    world.stop().await;
}

/// Nothing else takes time here, so the time is that of the requests which something waited for.
#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_four_requests_to_the_api_server_one_after_another_until_it_runs() {
    let takes = Duration::from_millis(50);
    let setup = Setup { api_takes: takes, ..Setup::default() };
    let world = Box::pin(with_plain_class(setup)).await;
    for of_class in CLASSES {
        let name = format!("m-{of_class}");
        let begun = tokio::time::Instant::now();
        world.apply::<Machine>(machine(&name, of_class)).await;
        world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
        assert_eq!(begun.elapsed().as_millis() / takes.as_millis(), 4, "{of_class}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_lasts_is_shown_by_one_write_of_status_with_its_wait() {
    let setup = Setup { api_takes: Duration::from_millis(50), ..Setup::default() };
    let world = Box::pin(World::start_with(setup)).await;
    let slow = json!({ "region": "local", "image": "fake-1.0", "latency": { "create": "10s" } });
    world.apply::<MachineClass>(class("slow", &slow)).await;
    world.apply::<Machine>(machine("m", "slow")).await;
    world.until("m", "waiting", waits_for(WaitReason::DriverWorking)).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let of_status =
        counted(&world, "ostler_api_writes_total{kind=\"Machine\",verb=\"patch_status\"");
    assert!((1.0..=1.0).contains(&of_status), "{of_status} writes of status");
    world.stop().await;
}

/// A patch of any of them waits longer for its turn than a status may wait for the next write.
#[tokio::test(start_paused = true)]
async fn machines_whose_core_may_ask_twenty_times_a_second_need_no_more_requests_and_no_event_is_late()
 {
    let rate = Some(Rate::every(Duration::from_millis(50), 30));
    let world = Box::pin(with_plain_class(Setup { rate, ..Setup::default() })).await;
    let before = writes(&world, "Machine");
    let names: Vec<_> = (0..MANY).map(|index| format!("m-{index}")).collect();
    for name in &names {
        world.apply::<Machine>(machine(name, "plain")).await;
    }
    for name in &names {
        world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    }
    let each = (writes(&world, "Machine") - before) / f64::from(MANY);
    assert!(each <= 3.0, "{each}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events =
        Api::<Event>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    let joined = events.iter().filter(|it| it.reason.as_deref() == Some("NodeJoined"));
    assert!(joined.count() >= names.len(), "{events:#?}");
    for event in events {
        let (came, at) =
            (event.metadata.creation_timestamp.unwrap().0, event.event_time.unwrap().0);
        assert!(
            came.duration_since(at) <= SignedDuration::from_secs(5),
            "{came}: {:?} {at}",
            event.reason
        );
    }
    world.stop().await;
}
