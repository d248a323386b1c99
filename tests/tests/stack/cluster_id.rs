//! A control plane that moves, and instances without tags: the whole stack on a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::{MachineClass, MachinePool};
use ostler_driver_fake::cloud::Identity;
use ostler_driver_fake::fault::Verb;
use ostler_server::GivenIds;
use ostler_tests::objects::{class, delete, gone, in_phase, instances, machine, waits_for};
use ostler_tests::rights::Request;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::pools;

/// The cluster ids of the next core.
#[derive(Clone, Default)]
struct Ids(Arc<Mutex<GivenIds>>);

impl Ids {
    fn tell(&self, id: &str, previous: &[&str]) {
        let previous = previous.iter().map(|id| (*id).to_owned()).collect();
        *self.0.lock().unwrap() = GivenIds { id: Some(id.to_owned()), previous };
    }

    /// Cores that are told so, and that look for orphans all the time.
    fn setup(&self) -> Setup {
        let ids = self.clone();
        Setup::tuned(move |options| {
            options.cluster = ids.0.lock().unwrap().clone();
            options.settings.orphans.period = Duration::from_mins(1);
            options.settings.orphans.grace = Duration::from_secs(1);
        })
    }
}

/// Machines that run with instances under this id, and no core any more.
async fn made_under(id: &str, count: usize) -> (World, Ids) {
    let ids = Ids::default();
    ids.tell(id, &[]);
    let mut world = World::start_with(ids.setup()).await;
    for name in names(count) {
        world.apply::<Machine>(machine(&name, "fake")).await;
    }
    for name in names(count) {
        world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
    }
    world.stop_core().await;
    (world, ids)
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("m-{index}"))
}

/// The cluster id on each instance, by provider id.
fn tagged(world: &World) -> BTreeMap<String, String> {
    let all = world.cloud().instances().unwrap().into_iter();
    all.map(|it| (it.provider_id, it.identity.cluster_id)).collect()
}

async fn until_tagged(world: &World, id: &str) {
    let mut changes = world.cloud().subscribe();
    let reached = async {
        while tagged(world).values().any(|carried| carried != id) {
            changes.changed().await.unwrap();
        }
    };
    timeout(Duration::from_hours(2), reached).await.expect("all are adopted");
}

fn calls(world: &World, verb: Verb) -> usize {
    world.calls().iter().filter(|call| call.operation == verb).count()
}

async fn events(world: &World, reason: &str) -> Vec<Event> {
    let all = Api::<Event>::default_namespaced(world.client()).list(&ListParams::default()).await;
    let of_reason = |event: &Event| event.reason.as_deref() == Some(reason);
    all.unwrap().items.into_iter().filter(of_reason).collect()
}

async fn map(world: &World) -> BTreeMap<String, String> {
    let maps = Api::<ConfigMap>::default_namespaced(world.client());
    maps.get("ostler-cluster-id").await.unwrap().data.unwrap()
}

#[tokio::test(start_paused = true)]
async fn inv_1_a_cluster_that_moves_keeps_its_instances_and_tags_them_anew() {
    let (mut world, ids) = made_under("a", 20).await;
    let before = tagged(&world);
    assert_eq!(before.len(), 20);
    ids.tell("b", &["a"]);
    world.start_core().await;
    until_tagged(&world, "b").await;
    sleep(Duration::from_mins(10)).await;
    let after = tagged(&world);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert_eq!(calls(&world, Verb::DeleteMachine), 0);
    assert!(events(&world, "OrphanFound").await.is_empty());
    for name in names(20) {
        let api = Api::<Machine>::default_namespaced(world.client());
        let status = api.get(&name).await.unwrap().status.unwrap();
        assert_eq!(status.instance_cluster_id.as_deref(), Some("b"));
    }
    let written = map(&world).await;
    let of = |key: &str| written.get(key).map(String::as_str);
    assert_eq!((of("clusterID"), of("previousClusterIDs")), (Some("b"), Some("a")));
    assert_eq!(of("orphans"), Some("report-only"), "until an operator has seen them");
    // The flag is forgotten, and the id is not.
    world.stop_core().await;
    ids.tell("b", &[]);
    world.start_core().await;
    delete(&world, "m-0").await;
    world.until("m-0", "gone", gone).await;
    assert_eq!(instances(&world), 19);
    assert_eq!(map(&world).await["previousClusterIDs"], "a");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_of_a_cluster_that_moves_is_tagged_anew_once_and_keeps_size_and_instances() {
    let ids = Ids::default();
    ids.tell("a", &[]);
    let mut world = pools::start_with(ids.setup()).await;
    world.apply::<MachinePool>(pools::pool("p", 2)).await;
    pools::until_runs(&world, 2).await;
    world.stop_core().await;
    let before: Vec<_> = tagged(&world).into_keys().collect();
    ids.tell("b", &["a"]);
    world.start_core().await;
    until_tagged(&world, "b").await;
    sleep(Duration::from_mins(10)).await;
    let groups = world.cloud().groups(|_| true).unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].group.identity.cluster_id, "b");
    assert_eq!(tagged(&world).into_keys().collect::<Vec<_>>(), before);
    assert_eq!(calls(&world, Verb::CreatePool), 2, "made once, tagged once");
    pools::until_runs(&world, 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_with_another_id_does_not_start_unless_it_is_told_of_the_one_before() {
    let (world, ids) = made_under("a", 1).await;
    ids.tell("c", &[]);
    let refused = world.refusal().await.unwrap();
    for part in ["\"c\"", "\"a\"", "--previous-cluster-ids a", "default/ostler-cluster-id"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(map(&world).await["clusterID"], "a");
    ids.tell("c", &["a"]);
    assert_eq!(world.refusal().await, None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_knows_nothing_of_the_id_before_makes_nothing_and_says_so() {
    let (mut world, ids) = made_under("a", 3).await;
    let before = tagged(&world);
    let maps = Api::<ConfigMap>::default_namespaced(world.client());
    // It is held while there are machines: a user takes it away by force.
    let force = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("ostler-cluster-id", &PatchParams::default(), &force).await.unwrap();
    maps.delete("ostler-cluster-id", &DeleteParams::default()).await.unwrap();
    ids.tell("c", &[]);
    let creates = calls(&world, Verb::CreateMachine);
    world.start_core().await;
    let said = |machine: Option<&Machine>| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.is_some_and(|it| {
            let mut all = it.conditions.iter();
            all.any(|one| one.reason.as_deref() == Some("ClusterIdChanged"))
        })
    };
    for name in names(3) {
        world.until(&name, "told", said).await;
    }
    let told = events(&world, "ClusterIdChanged").await;
    assert_eq!(told.len(), 3);
    delete(&world, "m-0").await;
    world.until("m-0", "kept", waits_for(WaitReason::ClusterIdChanged)).await;
    sleep(Duration::from_mins(20)).await;
    assert_eq!((tagged(&world), calls(&world, Verb::CreateMachine)), (before, creates));
    world.stop_core().await;
    ids.tell("c", &["a"]);
    world.start_core().await;
    world.until("m-0", "gone", gone).await;
    until_tagged(&world, "c").await;
    sleep(Duration::from_mins(20)).await;
    assert_eq!(instances(&world), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_the_id_before_that_no_machine_stands_for_is_reported_and_stays() {
    let (mut world, ids) = made_under("a", 1).await;
    let lost = Identity {
        cluster_id: "a".to_owned(),
        machine_name: "lost".to_owned(),
        machine_uid: "uid of lost".to_owned(),
    };
    plant(&world, lost, false);
    ids.tell("b", &["a"]);
    world.start_core().await;
    while events(&world, "OrphanFound").await.is_empty() {
        sleep(Duration::from_mins(1)).await;
    }
    accept(&world).await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!((instances(&world), calls(&world, Verb::DeleteMachine)), (2, 0));
    world.stop().await;
}

/// Takes the mark away by which orphans are only reported.
async fn accept(world: &World) {
    let maps = Api::<ConfigMap>::default_namespaced(world.client());
    let patch = Patch::Merge(json!({ "data": { "orphans": null } }));
    maps.patch("ostler-cluster-id", &PatchParams::default(), &patch).await.unwrap();
}

/// Another instance like the first one, with this identity and no more than it says.
fn plant(world: &World, identity: Identity, bare: bool) {
    let mut new = world.cloud().instances().unwrap().remove(0);
    new.provider_id = format!("{}0", new.provider_id);
    new.identity = identity;
    if bare {
        for tags in [&mut new.vm, &mut new.network, &mut new.disk] {
            tags.tags.retain(|key, _| !key.starts_with("ostler.dev/"));
        }
    }
    world.cloud().plant(vec![new]).unwrap();
}

/// A core that runs, one of its machines, and an instance of MCM's without a machine.
async fn untagged(deletes: bool, forbids: fn(&Request) -> bool) -> World {
    let setup = Setup::tuned(move |options| {
        options.settings.orphans.period = Duration::from_mins(1);
        options.settings.orphans.grace = Duration::from_secs(1);
        options.settings.orphans.delete_untagged = deletes;
    });
    let world = World::start_with(Setup { forbids, ..setup }).await;
    let mcm = json!({ "kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1" });
    let spec = json!({ "region": "local", "image": "fake-1.0", "tags": { "vm": mcm } });
    world.apply::<MachineClass>(class("old", &spec)).await;
    world.apply::<Machine>(machine("m", "old")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let (cluster_id, machine_uid) = (String::new(), String::new());
    let lost = Identity { cluster_id, machine_name: "lost".to_owned(), machine_uid };
    plant(&world, lost, true);
    world
}

#[tokio::test(start_paused = true)]
async fn inv_5_an_orphan_without_tags_of_ours_is_only_reported_without_the_flag() {
    let world = untagged(false, |_| false).await;
    while events(&world, "OrphanFound").await.is_empty() {
        sleep(Duration::from_mins(1)).await;
    }
    let note = events(&world, "OrphanFound").await.remove(0).note.unwrap();
    assert!(note.contains("--delete-untagged-orphans"), "{note}");
    sleep(Duration::from_mins(30)).await;
    assert_eq!((instances(&world), calls(&world, Verb::DeleteMachine)), (2, 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn inv_5_nor_with_the_flag_and_without_the_right_to_look_into_all_namespaces() {
    let all_machines: fn(&Request) -> bool = |asked| {
        (asked.verb, asked.resource.as_str(), asked.namespace.as_str()) == ("list", "machines", "")
    };
    let world = untagged(true, all_machines).await;
    while events(&world, "OrphanFound").await.is_empty() {
        sleep(Duration::from_mins(1)).await;
    }
    let note = events(&world, "OrphanFound").await.remove(0).note.unwrap();
    assert!(note.contains("list machines"), "{note}");
    sleep(Duration::from_mins(30)).await;
    assert_eq!((instances(&world), calls(&world, Verb::DeleteMachine)), (2, 0));
    // Not stopped, as in the next one.
}

#[tokio::test(start_paused = true)]
async fn with_the_flag_it_goes_unless_a_machine_of_any_namespace_has_its_name() {
    let world = untagged(true, |_| false).await;
    let mut elsewhere = machine("lost", "old");
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let api = Api::<Machine>::namespaced(world.client(), "elsewhere");
    let object = serde_json::from_value(elsewhere).unwrap();
    namespace(&world, "elsewhere").await;
    api.create(&PostParams::default(), &object).await.unwrap();
    sleep(Duration::from_mins(20)).await;
    assert_eq!((instances(&world), calls(&world, Verb::DeleteMachine)), (2, 0));
    api.delete("lost", &DeleteParams::default()).await.unwrap();
    let mut changes = world.cloud().subscribe();
    while instances(&world) > 1 {
        timeout(Duration::from_hours(1), changes.changed()).await.unwrap().unwrap();
    }
    sleep(Duration::from_mins(20)).await;
    assert_eq!((instances(&world), calls(&world, Verb::DeleteMachine)), (1, 1));
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    // Not stopped, for that judges what was asked by the roles in deploy/base: only who gives the flag gives the
    // right to list the machines of all namespaces.
}

async fn namespace(world: &World, name: &str) {
    use k8s_openapi::api::core::v1::Namespace;
    let object: Namespace = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
    }))
    .unwrap();
    world.create(&object).await;
}
