use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use ostler_api::names::label;
use ostler_api::{Machine, MachineSet};
use ostler_sessions::SessionEvent;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::REPORTER;
use crate::bench::Bench;
use crate::clock::Clock;
use crate::deployment::Deployments;
use crate::events::EventMetrics;
use crate::fleet::FleetKind as _;
use crate::freeze::FreezeKey;
use crate::freeze::OF_SET;
use crate::hints::Listener;
use crate::left_groups::GroupKey;
use crate::machine::Machines;
use crate::queue::Outcome;
use crate::set::Sets;
use crate::stores::AttachmentIndex;
use crate::target::{Target, Targets};
use crate::watch::{Author, Cache, CacheIndex, Change, ObjectName, WatchMetrics, handed_out};
use crate::watching::SessionFollower;

/// All kinds, with their triggers.
struct World {
    kinds: Kinds,
    stores: Stores,
    state: Arc<State>,
    all: AllTriggers,
    follower: SessionFollower,
}

impl World {
    fn machine(&self, change: &Change<Machine>) {
        self.all.tell(|it| it.machine(change));
    }

    fn set(&self, change: &Change<MachineSet>) {
        self.all.tell(|it| it.set(change));
    }
}

fn world() -> World {
    let metrics = QueueMetrics::register(&mut Registry::default());
    let unused = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("the client must not be used"))
    });
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let client = Client::new(unused, "default");
    let (recorder, _) = Recorder::new(
        client.clone(),
        (REPORTER, "test"),
        Arc::clone(&clock),
        EventMetrics::default(),
    );
    let settings = Arc::new(Settings {
        aliases: [("AWS".into(), "aws.example.com".into())].into(),
        ..Settings::default()
    });
    let stores = Stores::new(Targets::one(client.clone()));
    let state = Arc::new(State::of(&stores.machines));
    let sessions = Bench::new().sessions;
    let home = Arc::new(settings.home_namespace(client.clone()));
    let kinds = Kinds::new(&metrics, &stores, &settings, &state, (&sessions, &recorder, &home));
    let (queues, registry) = (kinds.booted(), &mut Registry::default());
    let watches = WatchMetrics::register(registry);
    let configs = Configs::new(client, stores.clone(), queues, watches, registry);
    let all = kinds.all(&Arc::new(configs), &stores);
    let hints =
        Listener { hints: Arc::clone(&state.hints), stores: stores.clone(), settings, sessions };
    let follower = SessionFollower { all: all.clone(), hints, recorder, clock };
    World { kinds, stores, state, all, follower }
}

fn target(world: &World) -> Arc<Target> {
    world.stores.targets.all().remove(0)
}

/// The names in a queue of objects.
async fn waiting(queue: &Arc<Queue<ObjectName>>) -> BTreeSet<String> {
    keys(queue).await.into_iter().map(|name| name.name).collect()
}

/// The keys in a queue.
async fn keys<K>(queue: &Arc<Queue<K>>) -> HashSet<K>
where
    K: Clone + Debug + Eq + Hash + Send + 'static,
{
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let stop = CancellationToken::new();
    let (end, keys) = (stop.clone(), Arc::clone(&seen));
    let run = Arc::clone(queue).run(stop, move |key: K| {
        let keys = Arc::clone(&keys);
        async move {
            keys.lock().unwrap().insert(key);
            Outcome::Done
        }
    });
    tokio::join!(run, async {
        // On a paused clock this ends when nothing else is left to run.
        tokio::time::sleep(Duration::from_secs(1)).await;
        end.cancel();
    });
    let seen = seen.lock().unwrap();
    seen.clone()
}

async fn machines(world: &World) -> Vec<String> {
    waiting(&world.kinds.machines.queue).await.into_iter().collect()
}

fn put<I>(cache: &Cache<I>, object: Value) -> Change<I::Object>
where
    I: CacheIndex<Object: serde::de::DeserializeOwned>,
{
    let object = serde_json::from_value(object).unwrap();
    cache.apply(Event::Apply(object)).into_iter().next().unwrap()
}

fn machine(name: &str, class: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": name, "namespace": "default", "uid": name, "labels": labels },
        "spec": { "class": { "kind": "MachineClass", "name": class } }
    })
}

fn class(name: &str, provider: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": name, "namespace": "default" },
        "provider": provider, "providerSpec": {}, "secretRef": { "name": secret }
    })
}

#[tokio::test(start_paused = true)]
async fn a_secret_reaches_the_machines_of_the_classes_that_name_it() {
    let world = world();
    let stores = &world.stores;
    put(&stores.classes, class("c", "p", "s"));
    put(&stores.classes, class("d", "p", "other"));
    put(&stores.machines, machine("m", "c", &json!({})));
    put(&stores.machines, machine("n", "d", &json!({})));
    let secret = json!({ "metadata": { "name": "s", "namespace": "default" } });
    let change = put(&stores.secrets, secret);
    world.all.tell(|it| it.secret(&change));
    assert_eq!(machines(&world).await, ["m"]);
    assert_eq!(waiting(&world.kinds.secrets.queue).await, ["s".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn a_driver_reaches_the_machines_of_its_provider_by_any_of_its_names() {
    let world = world();
    put(&world.stores.classes, class("c", "AWS", "s"));
    put(&world.stores.classes, class("d", "fake.ostler.dev", "s"));
    put(&world.stores.machines, machine("m", "c", &json!({})));
    put(&world.stores.machines, machine("n", "d", &json!({})));
    world.follower.heard(SessionEvent::ProviderReady { provider: "aws.example.com".into() });
    assert_eq!(machines(&world).await, ["m"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_reaches_its_machines_also_after_events_that_were_missed() {
    let world = world();
    put(&world.stores.classes, class("c", "AWS", "s"));
    put(&world.stores.machines, machine("m", "c", &json!({})));
    let (events, heard) = tokio::sync::broadcast::channel(4);
    let of_nobody =
        || SessionEvent::OutcomeReady { target_uid: "u".into(), operation_id: "o".into() };
    for _ in 0..10 {
        events.send(of_nobody()).unwrap();
    }
    let queue = Arc::clone(&world.kinds.machines.queue);
    let follows = tokio::spawn(world.follower.follow(heard));
    tokio::task::yield_now().await;
    assert_eq!(waiting(&queue).await, all(&["m"]), "everything may have changed");
    events.send(SessionEvent::ProviderReady { provider: "aws.example.com".into() }).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(waiting(&queue).await, all(&["m"]));
    follows.abort();
}

#[tokio::test(start_paused = true)]
async fn an_outcome_reaches_its_machine_by_uid() {
    let world = world();
    put(&world.stores.machines, machine("m", "c", &json!({})));
    let (target_uid, operation_id) = ("m".to_owned(), "o".to_owned());
    world.follower.heard(SessionEvent::OutcomeReady {
        target_uid: target_uid.into(),
        operation_id: operation_id.into(),
    });
    assert_eq!(machines(&world).await, ["m"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_reaches_its_machine_by_label_and_a_heartbeat_reaches_none() {
    let world = world();
    let target = target(&world);
    put(&world.stores.machines, machine("m", "c", &json!({ "node": "n" })));
    let node = |version: &str, beat: &str| {
        json!({
            "metadata": { "name": "n", "resourceVersion": version },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "lastHeartbeatTime": beat }
            ] }
        })
    };
    world.all.node(&target, &put(&target.nodes, node("1", "2026-01-01T00:00:00Z")));
    assert_eq!(machines(&world).await, ["m"]);
    world.all.node(&target, &put(&target.nodes, node("2", "2026-01-01T00:05:00Z")));
    assert!(machines(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_reaches_only_a_machine_that_is_being_deleted() {
    let world = world();
    let target = target(&world);
    put(&world.stores.machines, machine("m", "c", &json!({ "node": "n" })));
    let pod = |version: &str| {
        json!({
            "metadata": { "name": "p", "namespace": "a", "resourceVersion": version },
            "spec": { "nodeName": "n", "containers": [] }
        })
    };
    let change = put(&target.pods, pod("1"));
    world.all.tell(|it| it.pod(&target, &change));
    assert!(machines(&world).await.is_empty());
    let mut deleting = machine("m", "c", &json!({ "node": "n" }));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    put(&world.stores.machines, deleting);
    let change = put(&target.pods, pod("2"));
    world.all.tell(|it| it.pod(&target, &change));
    assert_eq!(machines(&world).await, ["m"]);
}

/// Else the list of the attachments of a large cluster costs attachments times machines.
#[tokio::test(start_paused = true)]
async fn a_volume_that_is_attached_reaches_the_machines_that_wait_for_that_and_looks_at_no_other() {
    let world = world();
    let target = target(&world);
    let waiting = |name: &str, reason: &str| {
        let mut machine = machine(name, "c", &json!({}));
        machine["status"] = json!({ "waitingFor": { "reason": reason } });
        machine
    };
    for number in 0..100 {
        put(&world.stores.machines, waiting(&format!("m{number}"), "VolumesAttached"));
    }
    put(&world.stores.machines, waiting("follows", "VolumesMoving"));
    let attachments = Cache::<AttachmentIndex>::default();
    let attachment = |name: &str, attached: bool| {
        let spec = json!({ "attacher": "a", "nodeName": "n", "source": {} });
        let status = json!({ "attached": attached });
        json!({ "metadata": { "name": name }, "spec": spec, "status": status })
    };
    handed_out();
    let change = put(&attachments, attachment("a", false));
    world.all.tell(|it| it.attachment(&target, &change));
    assert!(machines(&world).await.is_empty());
    let change = put(&attachments, attachment("b", true));
    world.all.tell(|it| it.attachment(&target, &change));
    assert_eq!(machines(&world).await, ["follows"]);
    assert_eq!(handed_out(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_changes_class_reaches_both() {
    let world = world();
    put(&world.stores.machines, machine("m", "c", &json!({})));
    let moved = put(&world.stores.machines, machine("m", "d", &json!({})));
    world.machine(&moved);
    let expected = ["c", "d"].map(str::to_owned).into();
    assert_eq!(waiting(&world.kinds.classes.queue).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_class_is_reached_by_its_first_and_its_last_machine_and_by_none_in_between() {
    let world = world();
    let machines = &world.stores.machines;
    let delete = |name: &str| {
        let gone = serde_json::from_value(machine(name, "c", &json!({}))).unwrap();
        world.machine(&machines.apply(Event::Delete(gone)).remove(0));
    };
    let reached = || async { !waiting(&world.kinds.classes.queue).await.is_empty() };
    let mut foreign = machine("foreign", "c", &json!({}));
    foreign["spec"]["class"]["kind"] = json!("AWSMachineClass");
    put(machines, foreign);
    world.machine(&put(machines, machine("m", "c", &json!({}))));
    assert!(reached().await, "one that names a class of another kind is no user");
    world.machine(&put(machines, machine("n", "c", &json!({}))));
    delete("m");
    assert!(!reached().await, "it is used all the same");
    delete("n");
    assert!(reached().await);
}

/// All objects of a list are in the cache before the first is reported.
#[tokio::test(start_paused = true)]
async fn a_machine_that_another_of_its_name_replaced_between_two_lists_is_gone() {
    let world = world();
    put(&world.stores.classes, class("c", "fake.ostler.dev", "s"));
    put(&world.stores.machines, machine("m", "c", &Value::Null));
    let old = world.stores.machines.all().remove(0);
    assert!(world.state.slots.take(&old, false, Some(1)));
    let mut new = machine("m", "c", &Value::Null);
    new["metadata"]["uid"] = json!("another");
    world.machine(&put(&world.stores.machines, new));
    assert_eq!(world.state.slots.count(), (0, 0), "its update slot is free");
    assert_eq!(keys(&world.kinds.scans.own.queue).await.len(), 1, "it may have left its instance");
}

#[tokio::test(start_paused = true)]
async fn a_class_is_reached_by_machines_that_were_listed_together() {
    let world = world();
    let machines = &world.stores.machines;
    machines.apply(Event::Init);
    for name in ["m", "n"] {
        let listed = serde_json::from_value(machine(name, "c", &json!({}))).unwrap();
        machines.apply(Event::InitApply(listed));
    }
    machines.apply(Event::InitDone).iter().for_each(|change| world.machine(change));
    assert_eq!(waiting(&world.kinds.classes.queue).await, all(&["c"]));
}

/// The change by a write of this process, when its event arrives.
fn written<I>(cache: &Cache<I>, object: Value, author: Author) -> Change<I::Object>
where
    I: CacheIndex<Object: serde::de::DeserializeOwned>,
{
    let object: I::Object = serde_json::from_value(object).unwrap();
    cache.update(object.clone(), author);
    cache.apply(Event::Apply(object)).remove(0)
}

/// An object with a version and a controller.
fn owned(mut object: Value, version: &str, owner: &str) -> Value {
    object["metadata"]["resourceVersion"] = json!(version);
    object["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v", "kind": "k", "name": owner, "uid": owner, "controller": true }]);
    object
}

fn fleet(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind,
        "metadata": { "name": name, "namespace": "default", "uid": name, "resourceVersion": "1" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "a" } },
            "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } }
        }
    })
}

fn all(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_set_of_a_machine_is_told_of_what_the_machine_controller_wrote_and_the_machine_is_not()
{
    let world = world();
    let stores = &world.stores;
    put(&stores.sets, fleet("MachineSet", "s"));
    let before = owned(machine("m", "c", &json!({})), "2", "s");
    let mut after = owned(before.clone(), "3", "s");
    after["status"] = json!({ "currentStatus": { "phase": "Running" } });
    let by = Author::new(Machines::NAME, put(&stores.machines, before).latest().unwrap().as_ref());
    world.machine(&written(&stores.machines, after, by));
    assert_eq!(waiting(&world.kinds.sets.queue).await, all(&["s"]));
    assert!(machines(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_set_and_its_deployment_are_told_that_the_set_is_frozen() {
    let world = world();
    let stores = &world.stores;
    put(&stores.deployments, fleet("MachineDeployment", "same"));
    let before = owned(fleet("MachineSet", "same"), "2", "same");
    let mut after = owned(before.clone(), "3", "same");
    after["metadata"]["labels"] = json!({ label::FREEZE: "True" });
    let by = Author::new(OF_SET, put(&stores.sets, before).latest().unwrap().as_ref());
    world.set(&written(&stores.sets, after, by));
    assert_eq!(waiting(&world.kinds.sets.queue).await, all(&["same"]));
    assert_eq!(waiting(&world.kinds.deployments.queue).await, all(&["same"]));
    let shown = FreezeKey::Deployment(ObjectName::new("default", "same"));
    assert_eq!(keys(&world.kinds.freezes.queue).await, [shown].into());
}

#[tokio::test(start_paused = true)]
async fn a_set_that_its_deployment_wrote_reaches_the_set_and_every_deployment_but_that_one() {
    let world = world();
    let stores = &world.stores;
    let adopter = put(&stores.deployments, fleet("MachineDeployment", "adopter"));
    put(&stores.deployments, fleet("MachineDeployment", "other"));
    let mut before = fleet("MachineSet", "s");
    before["metadata"]["labels"] = json!({ "app": "a" });
    put(&stores.sets, before.clone());
    let by = Author::new(Deployments::NAME, adopter.latest().unwrap().as_ref());
    world.set(&written(&stores.sets, owned(before, "3", "adopter"), by));
    assert_eq!(waiting(&world.kinds.sets.queue).await, all(&["s"]));
    assert_eq!(waiting(&world.kinds.deployments.queue).await, all(&["other"]));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_set_wrote_reaches_its_deployment_and_no_freeze() {
    let world = world();
    let stores = &world.stores;
    put(&stores.deployments, fleet("MachineDeployment", "d"));
    let before = owned(fleet("MachineSet", "s"), "2", "d");
    let mut after = owned(before.clone(), "3", "d");
    after["status"] = json!({ "replicas": 1 });
    let by = Author::new(Sets::NAME, put(&stores.sets, before).latest().unwrap().as_ref());
    world.set(&written(&stores.sets, after, by));
    assert_eq!(waiting(&world.kinds.deployments.queue).await, all(&["d"]));
    assert!(waiting(&world.kinds.sets.queue).await.is_empty());
    assert!(keys(&world.kinds.freezes.queue).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_its_machine_wrote_reaches_the_controller_of_unmanaged_nodes_alone() {
    let world = world();
    let target = target(&world);
    let owner = put(&world.stores.machines, machine("m", "c", &json!({ "node": "n" })));
    let node = |version: &str, cordoned: bool| {
        json!({
            "metadata": { "name": "n", "resourceVersion": version },
            "spec": { "unschedulable": cordoned }
        })
    };
    put(&target.nodes, node("1", false));
    let by = Author::new(Machines::NAME, owner.latest().unwrap().as_ref());
    world.all.node(&target, &written(&target.nodes, node("2", true), by));
    assert!(machines(&world).await.is_empty());
    assert_eq!(waiting(&world.kinds.nodes.queue).await, all(&["n"]));
}

/// How many passes follow from a hundred changes, a millisecond apart. A pass takes no time.
async fn passes(queue: &Arc<Queue<ObjectName>>, change: impl Fn(usize)) -> usize {
    let (stop, passes) = (CancellationToken::new(), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&passes);
    let run = Arc::clone(queue).run(stop.clone(), move |_| {
        let passes = Arc::clone(&counted);
        async move {
            *passes.lock().unwrap() += 1;
            Outcome::Done
        }
    });
    tokio::join!(run, async {
        for number in 0..100 {
            change(number);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    });
    let passes = passes.lock().unwrap();
    *passes
}

/// How many passes over a set of so many follow from a hundred machines that change one after the other.
async fn passes_over_a_set_of(replicas: u32) -> usize {
    let world = world();
    let stores = &world.stores;
    let mut set = fleet("MachineSet", "s");
    set["spec"]["replicas"] = json!(replicas);
    put(&stores.sets, set);
    passes(&world.kinds.sets.queue, |number| {
        let member = owned(machine(&format!("m{number}"), "c", &json!({})), "1", "s");
        world.machine(&put(&stores.machines, member));
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_large_set_gathers_changes_of_its_machines_into_few_passes_and_a_small_one_waits_for_none()
 {
    assert_eq!(passes_over_a_set_of(3).await, 100);
    let passes = passes_over_a_set_of(1000).await;
    assert!((1..=2).contains(&passes), "{passes} for a hundred changes within a tenth of a second");
}

/// A machine of a pool, of which the address is nothing to the pool, and the phase is.
fn of_pool(number: usize, version: usize, address: usize, phase: &str) -> Value {
    let mut member =
        owned(machine(&format!("m{number}"), "c", &json!({})), &version.to_string(), "p");
    member["status"] = json!({
        "addresses": [{ "type": "InternalIP", "address": format!("10.0.0.{address}") }],
        "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": null }],
        "currentStatus": { "phase": phase },
    });
    member
}

#[tokio::test(start_paused = true)]
async fn a_changed_machine_is_no_pass_over_its_pool_unless_that_reads_the_change_and_many_are_one()
{
    for (size, each) in [(100, true), (1_000, false), (10_000, false)] {
        let world = world();
        let stores = &world.stores;
        put(&stores.pools, pool("p"));
        for number in 0..size {
            put(&stores.machines, of_pool(number, 1, 0, "Running"));
        }
        handed_out();
        let queue = &world.kinds.pools.queue;
        let change = |number: usize, version, address, phase| {
            let member = of_pool(number % size, version + number / size, address, phase);
            world.machine(&put(&stores.machines, member));
        };
        assert_eq!(passes(queue, |number| change(number, 2, number, "Running")).await, 0);
        let looks = handed_out();
        assert!(looks <= 200, "{looks} objects and names of a pool of {size}");

        let many = passes(queue, |number| change(number, 10, number, "Unknown")).await;
        let expected = if each { 100..=100 } else { 1..=2 };
        assert!(expected.contains(&many), "{many} over a pool of {size}");
        let looks = handed_out();
        assert!(looks <= 1_000, "{looks} objects and names of a pool of {size}");
    }
}

fn pool(uid: &str) -> Value {
    json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
        "metadata": { "name": "p", "namespace": "default", "uid": uid },
        "spec": { "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } } }
    })
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_an_instance_of_a_group_has_its_pool_read_the_group() {
    let world = world();
    put(&world.stores.pools, pool("pool-uid"));
    let mut of_pool = machine("p-1", "c", &json!({}));
    of_pool["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "name": "p", "uid": "pool-uid",
        "controller": true
    }]);
    world.kinds.pools.instance(&serde_json::from_value(machine("alone", "c", &json!({}))).unwrap());
    let reads = &world.kinds.pools.own.reads;
    assert_eq!(keys(reads).await.len(), 0);
    world.kinds.pools.instance(&serde_json::from_value(of_pool).unwrap());
    let group = GroupKey::Of(ObjectName::new("default", "p"));
    assert_eq!(keys(reads).await, HashSet::from([group]));
}

#[tokio::test(start_paused = true)]
async fn a_machine_reaches_the_checks_that_select_it_or_did_and_the_one_whose_mark_it_has() {
    let world = world();
    let target = target(&world);
    let check = |name: &str, app: &str| {
        json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "app": app } } }
        })
    };
    for (name, app) in [("of-web", "web"), ("of-db", "db"), ("of-none", "none")] {
        put(&world.stores.checks, check(name, app));
    }
    let checks = || waiting(&world.kinds.checks.queue);
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let labels = json!({ "app": "web", "node": "n" });
    world.machine(&put(&world.stores.machines, machine("m", "c", &labels)));
    assert_eq!(checks().await, named(&["of-web"]));
    let node = json!({ "metadata": { "name": "n", "resourceVersion": "1" } });
    world.all.node(&target, &put(&target.nodes, node));
    assert_eq!(checks().await, named(&["of-web"]));
    let mut moved = machine("m", "c", &json!({ "app": "db", "node": "n" }));
    let mark =
        r#"{"check":"gone","reason":"NodeDeleted","since":"2026-01-01T00:00:00Z","message":""}"#;
    moved["metadata"]["annotations"] = json!({ "ostler.dev/unhealthy": mark });
    world.machine(&put(&world.stores.machines, moved.clone()));
    assert_eq!(checks().await, named(&["gone", "of-db", "of-web"]));
    // The Machine is preserved, and then no longer.
    for until in [json!("2026-01-05T00:00:00Z"), Value::Null] {
        moved["status"] = json!({ "currentStatus": { "preserveExpiryTime": until } });
        world.machine(&put(&world.stores.machines, moved.clone()));
        assert_eq!(checks().await, named(&["gone", "of-db"]));
    }
}

#[path = "kinds_reserve_tests.rs"]
mod reserves;
