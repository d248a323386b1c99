//! Upgrades at noon: drivers and cores are replaced while machines are made and deleted, and nothing is lost.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_driver_fake::calls::Call;
use ostler_driver_fake::cloud::Cloud;
use ostler_driver_fake::fault::Verb;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::{sleep, timeout};

const MACHINES: usize = 200;
/// One after the other as long as there is work; with conflicts there is some left.
const MOST_UPGRADES: usize = 100;
/// Nothing happens in the cloud for so long: it is over. A message that a core could not send waits for longer than a
/// minute.
const QUIET: Duration = Duration::from_mins(5);
/// For the core that is not replaced any more.
const LAST_CORE: Duration = Duration::from_mins(10);

/// An upgrade during the test, over and over.
#[derive(Debug, Clone, Copy)]
enum Upgrade {
    /// A new replica, then SIGTERM for the one before.
    Driver,
    /// SIGTERM for the core, then a new one.
    Core,
    /// SIGKILL for the core, then a new one.
    CoreCrash,
    /// SIGKILL for the driver, then a new one.
    DriverCrash,
}

async fn perform(world: &mut World, upgrade: Upgrade) {
    match upgrade {
        Upgrade::Driver => world.replace_driver().await,
        Upgrade::Core => {
            world.stop_core().await;
            world.start_core().await;
        }
        Upgrade::CoreCrash => {
            world.crash_core();
            sleep(Duration::from_secs(1)).await;
            world.start_core().await;
        }
        Upgrade::DriverCrash => {
            world.crash_driver();
            sleep(Duration::from_secs(1)).await;
            world.start_driver();
        }
    }
}

async fn slow_class(world: &World, reads: Option<&str>) {
    let slow = |reads: &str| json!({ "operation": "GetMachineStatus", "latency": reads });
    let faults: Vec<_> = reads.into_iter().map(slow).collect();
    world
        .apply::<MachineClass>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineClass",
            "metadata": { "name": "slow", "namespace": "default" },
            "provider": "fake.ostler.dev",
            "providerSpec": {
                "region": "local", "image": "fake-1.0", "initialize": true,
                "latency": { "create": "5s", "initialize": "5s", "delete": "5s" },
                "faults": faults,
            },
            "secretRef": { "name": "fake", "namespace": "default" },
        }))
        .await;
}

fn machine(name: &str) -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "class": { "kind": "MachineClass", "name": "slow" } },
    }))
    .unwrap()
}

/// Machines come one after another, and each is deleted as soon as it runs. Ends when all are gone.
async fn users(client: Client) {
    let api = Api::<Machine>::default_namespaced(client);
    let mut made = 0;
    loop {
        sleep(Duration::from_millis(500)).await;
        for _ in 0..4.min(MACHINES - made) {
            api.create(&PostParams::default(), &machine(&format!("m-{made}"))).await.unwrap();
            made += 1;
        }
        let machines = api.list(&ListParams::default()).await.unwrap().items;
        if made == MACHINES && machines.is_empty() {
            return;
        }
        for machine in machines {
            let deleted = machine.metadata.deletion_timestamp.is_some();
            if machine.phase() == MachinePhase::Running && !deleted {
                let name = machine.metadata.name.unwrap();
                api.delete(&name, &DeleteParams::default()).await.unwrap();
            }
        }
    }
}

/// Instances of each UID, seen at any time.
async fn census(cloud: Cloud) -> BTreeMap<String, BTreeSet<String>> {
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut changes = cloud.subscribe();
    while timeout(QUIET, changes.changed()).await.is_ok() {
        for instance in cloud.instances().unwrap() {
            let of_uid = seen.entry(instance.identity.machine_uid).or_default();
            of_uid.insert(instance.provider_id);
        }
    }
    seen
}

/// Reads take no time, so no upgrade meets one.
const AT_ONCE: Option<&str> = None;
const SLOWLY: Option<&str> = Some("700ms");

/// Makes and deletes machines while `upgrades` go on and drivers take this long to find an instance.
async fn live_and_die(setup: Setup, reads: Option<&str>, upgrades: &[Upgrade]) -> World {
    let mut world = World::start_with(setup).await;
    slow_class(&world, reads).await;
    let census = tokio::spawn(census(world.cloud().clone()));
    let mut users = tokio::spawn(users(world.client()));
    let mut performed = 0;
    for upgrade in upgrades.iter().cycle().take(MOST_UPGRADES) {
        // Not a multiple of anything: upgrades fall into every step.
        sleep(Duration::from_millis(1_370)).await;
        if users.is_finished() {
            break;
        }
        perform(&mut world, *upgrade).await;
        performed += 1;
    }
    // What a core wrote down and could not send is taken up once another one has led for a while.
    let ended = timeout(LAST_CORE, &mut users).await;
    let left: Vec<_> = machines(&world).await.into_iter().map(|it| it.status).take(3).collect();
    assert!(ended.is_ok(), "after {performed} upgrades machines are left: {left:#?}");
    ended.unwrap().unwrap();
    assert!(performed >= 4, "only {performed} upgrades fell into the work");
    assert_eq!(world.cloud().instances().unwrap(), [], "no instance is left");
    let census = census.await.unwrap();
    assert_eq!(census.len(), MACHINES, "every machine had an instance");
    let twice = census.iter().find(|(_, instances)| instances.len() != 1);
    assert_eq!(twice, None, "a machine had more than one instance");
    world
}

async fn machines(world: &World) -> Vec<Machine> {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

/// Failures that machines reported. A wait for the next driver is no failure.
async fn failures(world: &World) -> BTreeSet<(String, String)> {
    let events = Api::<Event>::all(world.client()).list(&ListParams::default()).await.unwrap();
    let warnings = events.items.into_iter().filter(|it| it.type_.as_deref() == Some("Warning"));
    let told = warnings.map(|it| (it.reason.unwrap_or_default(), it.message.unwrap_or_default()));
    told.filter(|(reason, _)| reason != "Waiting").collect()
}

/// Upgrades in order lose no operation: each ends where it began, and nothing is done twice.
async fn nothing_is_even_repeated(setup: Setup, reads: Option<&str>, upgrades: &[Upgrade]) {
    let world = live_and_die(setup, reads, upgrades).await;
    assert_eq!(failures(&world).await, BTreeSet::new());
    let mut effects = BTreeMap::new();
    for call in world.calls() {
        let outcome = call.outcome.as_ref().map(|it| it.word.as_str());
        assert!(matches!(outcome, Some("OK" | "NotFound")), "{call:?}");
        let kind = format!("{:?}", call.operation);
        if ["CreateMachine", "InitializeMachine", "DeleteMachine"].contains(&kind.as_str()) {
            *effects.entry((kind, call.uid.clone())).or_insert(0) += 1;
        }
    }
    assert_eq!(effects.len(), 3 * MACHINES);
    let twice = effects.iter().find(|(_, count)| **count != 1);
    assert_eq!(twice, None, "an operation was done twice");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_replaced_again_and_again_loses_no_operation() {
    nothing_is_even_repeated(Setup::default(), AT_ONCE, &[Upgrade::Driver]).await;
}

#[tokio::test(start_paused = true)]
async fn a_core_replaced_again_and_again_loses_no_operation() {
    nothing_is_even_repeated(Setup::default(), AT_ONCE, &[Upgrade::Core]).await;
}

/// The next core knows nothing of it, and would have it cancelled.
#[tokio::test(start_paused = true)]
async fn a_read_ends_before_the_core_that_asked_for_it() {
    let mut world = World::start().await;
    slow_class(&world, SLOWLY).await;
    let api = Api::<Machine>::default_namespaced(world.client());
    api.create(&PostParams::default(), &machine("m")).await.unwrap();
    let reads = |it: &Call| it.operation == Verb::GetMachineStatus && it.outcome.is_none();
    while !world.calls().iter().any(reads) {
        // Nothing else tells of a read. The clock is paused, so this is no race.
        sleep(Duration::from_millis(1)).await;
    }
    world.stop_core().await;
    world.start_core().await;
    let running = |it: Option<&Machine>| it.is_some_and(|it| it.phase() == MachinePhase::Running);
    world.until("m", "Running", running).await;
    for call in world.calls() {
        let word = call.outcome.as_ref().map(|it| it.word.as_str());
        assert!(matches!(word, Some("OK" | "NotFound")), "{call:?}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_is_replaced_lets_every_read_end_though_the_api_server_is_slow() {
    let slow = Setup { api_takes: Duration::from_millis(150), ..Setup::default() };
    nothing_is_even_repeated(slow, SLOWLY, &[Upgrade::Core, Upgrade::Driver]).await;
}

/// A result that no core could record before its driver had to go is lost: a read comes, and a deletion is asked for
/// again, which finds nothing. Nothing is made again.
#[tokio::test(start_paused = true)]
async fn a_core_that_is_replaced_makes_nothing_twice_though_others_change_machines_meanwhile() {
    let contended = Setup { conflict_one_in: 3, ..Setup::default() };
    let world = live_and_die(contended, SLOWLY, &[Upgrade::Core, Upgrade::Driver]).await;
    assert_eq!(failures(&world).await, BTreeSet::new());
    let mut creates = BTreeMap::new();
    for call in world.calls() {
        let word = call.outcome.as_ref().map(|it| it.word.as_str());
        assert!(matches!(word, Some("OK" | "NotFound")), "{call:?}");
        if call.operation == Verb::CreateMachine {
            *creates.entry(call.uid.clone()).or_insert(0) += 1;
        }
    }
    assert_eq!(creates.len(), MACHINES);
    assert_eq!(creates.iter().find(|(_, count)| **count != 1), None, "a create was done twice");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_is_replaced_lets_every_read_end_though_watches_are_late() {
    let late = Setup { watches_lag: Duration::from_millis(400), ..Setup::default() };
    nothing_is_even_repeated(late, SLOWLY, &[Upgrade::Core, Upgrade::Driver]).await;
}

#[tokio::test(start_paused = true)]
async fn cores_and_drivers_replaced_in_turn_lose_no_operation() {
    let upgrades = [Upgrade::Driver, Upgrade::Core, Upgrade::CoreCrash];
    nothing_is_even_repeated(Setup::default(), AT_ONCE, &upgrades).await;
}

#[tokio::test(start_paused = true)]
async fn cores_and_drivers_that_crash_in_turn_make_nothing_twice_and_leave_nothing() {
    let upgrades = [Upgrade::DriverCrash, Upgrade::Core, Upgrade::CoreCrash, Upgrade::Driver];
    live_and_die(Setup::default(), AT_ONCE, &upgrades).await.stop().await;
}
