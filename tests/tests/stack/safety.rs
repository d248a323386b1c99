//! Instances without a machine, and machines that a user paused: the whole stack on a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_driver_fake::PROVIDER;
use ostler_driver_fake::cloud::{Identity, Instance, Power};
use ostler_driver_fake::fault::Verb;
use ostler_server::CoreOptions;
use ostler_tests::objects::{class, delete, get, gone, in_phase, instances, machine, waits_for};
use ostler_tests::rights::Request;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::{sleep, timeout};

/// A machine runs, and then a user deletes its object by force: the instance stays.
async fn lose(world: &World, name: &str, class: &str) {
    world.apply::<Machine>(machine(name, class)).await;
    world.until(name, "Running", in_phase(MachinePhase::Running)).await;
    tear_away(world, name).await;
}

async fn tear_away(world: &World, name: &str) {
    // Else the core would delete the instance in an orderly way meanwhile.
    let paused = json!({ "metadata": { "annotations": { "ostler.dev/paused": "true" } } });
    world.patch_machine(name, paused).await;
    world.until(name, "Paused", waits_for(WaitReason::Paused)).await;
    delete(world, name).await;
    world.patch_machine(name, json!({ "metadata": { "finalizers": null } })).await;
    world.until(name, "gone", gone).await;
}

/// Waits until the cloud holds so many instances.
async fn until_instances(world: &World, count: usize) {
    let mut changes = world.cloud().subscribe();
    let reached = async {
        while instances(world) != count {
            changes.changed().await.unwrap();
        }
    };
    timeout(Duration::from_hours(24), reached).await.expect("within a day");
}

fn deletions(world: &World) -> usize {
    world.calls().iter().filter(|call| call.operation == Verb::DeleteMachine).count()
}

async fn events(world: &World, reason: &str) -> Vec<Event> {
    let all = Api::<Event>::default_namespaced(world.client()).list(&ListParams::default()).await;
    let of_reason = |event: &Event| event.reason.as_deref() == Some(reason);
    all.unwrap().items.into_iter().filter(of_reason).collect()
}

/// Scans all the time, and takes no instance for young.
fn restless(options: &mut CoreOptions) {
    options.settings.orphans.period = Duration::from_mins(1);
    options.settings.orphans.grace = Duration::from_secs(1);
}

async fn annotate_class(world: &World, name: &str, paused: Option<&str>) {
    let patch = json!({ "metadata": { "annotations": { "ostler.dev/paused": paused } } });
    let api = Api::<MachineClass>::default_namespaced(world.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn inv_2_an_orphan_is_deleted_once_after_a_second_look_and_people_are_told() {
    let world = World::start().await;
    world.apply::<Machine>(machine("stays", "fake")).await;
    lose(&world, "lost", "fake").await;
    let before = deletions(&world);
    let began = world.now();
    until_instances(&world, 1).await;
    let took = world.now().duration_since(began).as_secs();
    assert!((600..900).contains(&took), "after the grace, before the next period: {took} s");
    sleep(Duration::from_mins(40)).await;
    assert_eq!(deletions(&world) - before, 1);
    world.until("stays", "Running", in_phase(MachinePhase::Running)).await;
    for reason in ["OrphanFound", "OrphanDeleted"] {
        let told = events(&world, reason).await;
        assert_eq!(told.len(), 1, "{reason}");
        let regarding = told[0].regarding.clone().unwrap();
        assert_eq!(regarding.kind.as_deref(), Some("MachineClass"));
        assert!(told[0].note.as_ref().unwrap().contains("machine lost"), "{told:?}");
    }
    world.stop().await;
}

/// Changes what stands beside the cluster id.
async fn note_in_map(world: &World, data: serde_json::Value) {
    let maps = Api::<ConfigMap>::default_namespaced(world.client());
    let patch = Patch::Merge(json!({ "data": data }));
    maps.patch("ostler-cluster-id", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn inv_2_an_orphan_is_only_reported_under_the_mark_of_a_restore() {
    let world = World::start().await;
    note_in_map(&world, json!({ "orphans": "report-only" })).await;
    lose(&world, "lost", "fake").await;
    while events(&world, "OrphanFound").await.is_empty() {
        sleep(Duration::from_mins(1)).await;
    }
    sleep(Duration::from_hours(5)).await;
    assert_eq!((instances(&world), deletions(&world)), (1, 0));
    note_in_map(&world, json!({ "orphans": null })).await;
    until_instances(&world, 0).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_whose_lease_was_made_again_deletes_no_orphan() {
    let mut world = World::start().await;
    // The first look records the Lease.
    sleep(Duration::from_mins(20)).await;
    world.stop_core().await;
    let leases = Api::<Lease>::default_namespaced(world.client());
    leases.delete("machine-controller", &DeleteParams::default()).await.unwrap();
    world.start_core().await;
    lose(&world, "lost", "fake").await;
    while events(&world, "OrphanFound").await.is_empty() {
        sleep(Duration::from_mins(1)).await;
    }
    assert_eq!(events(&world, "OrphansHeld").await.len(), 1);
    sleep(Duration::from_hours(5)).await;
    assert_eq!((instances(&world), deletions(&world)), (1, 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn report_only_tells_of_an_orphan_once_and_deletes_nothing() {
    let report = |options: &mut CoreOptions| {
        options.settings.orphans.mode = "report".parse().unwrap();
    };
    let world = World::start_with(Setup::tuned(report)).await;
    lose(&world, "lost", "fake").await;
    while events(&world, "OrphanFound").await.is_empty() {
        sleep(Duration::from_mins(1)).await;
    }
    // Events are kept for an hour.
    sleep(Duration::from_mins(50)).await;
    assert_eq!((instances(&world), deletions(&world)), (1, 0));
    let told = events(&world, "OrphanFound").await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].series, None, "once, not at every look");
    let counted = format!("ostler_orphans{{provider=\"{PROVIDER}\"}} 1");
    assert!(world.metrics().contains(&counted), "it is paid for");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn inv_5_instances_of_another_cluster_or_without_a_uid_are_never_touched() {
    let world = World::start_with(Setup::tuned(restless)).await;
    lose(&world, "lost", "fake").await;
    let mine = world.cloud().instances().unwrap().remove(0);
    let strangers = [("of another cluster", "another", "uid-1"), ("nameless", "", "")];
    for (name, cluster, uid) in strangers {
        let cluster = if cluster.is_empty() { &mine.identity.cluster_id } else { cluster };
        let identity = Identity {
            cluster_id: cluster.to_owned(),
            machine_name: name.to_owned(),
            machine_uid: uid.to_owned(),
        };
        add(&world, &mine, identity);
    }
    assert_eq!(instances(&world), 3);
    until_instances(&world, 2).await;
    sleep(Duration::from_mins(30)).await;
    let left: BTreeSet<String> = world
        .cloud()
        .instances()
        .unwrap()
        .into_iter()
        .map(|one| one.identity.machine_name)
        .collect();
    assert_eq!(left, ["of another cluster".to_owned(), "nameless".to_owned()].into());
    world.stop().await;
}

/// Adds an instance like `like`, of another system.
fn add(world: &World, like: &Instance, identity: Identity) {
    use ostler_driver_fake::cloud::NewInstance;
    use ostler_driver_fake::spec::ProviderSpec;
    let spec: ProviderSpec =
        serde_json::from_value(json!({ "region": like.region, "image": like.image })).unwrap();
    let new = NewInstance {
        identity,
        class: like.class.clone(),
        spec,
        identity_tags: std::collections::BTreeMap::new(),
        bootstrap: like.bootstrap.clone(),
        previous: None,
        by_name: None,
        previous_clusters: Vec::new(),
    };
    world.cloud().create(&new).unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_being_made_or_adopted_is_ever_taken_for_an_orphan() {
    let mut world = World::start_with(Setup::tuned(restless)).await;
    // The cloud makes the instance immediately, says so late, and lists it later still.
    let spec = json!({
        "region": "local", "image": "fake-1.0", "initialize": true,
        "latency": { "create": "4m", "initialize": "2m", "list": "30s" },
    });
    world.apply::<MachineClass>(class("slow", &spec)).await;
    for index in 0..10 {
        world.apply::<Machine>(machine(&format!("m-{index}"), "slow")).await;
        sleep(Duration::from_secs(20)).await;
        match index {
            3 => {
                world.crash_core();
                world.start_core().await;
            }
            6 => {
                world.crash_driver();
                sleep(Duration::from_secs(3)).await;
                world.start_driver();
            }
            8 => world.cut_links(),
            _ => {}
        }
    }
    let first: Vec<String> = ids(&world);
    for index in 0..10 {
        let running = in_phase(MachinePhase::Running);
        world.until(&format!("m-{index}"), "Running", running).await;
    }
    sleep(Duration::from_hours(1)).await;
    assert_eq!(deletions(&world), 0);
    assert_eq!(ids(&world), first, "INV-1: these, and no others");
    let lists = world.calls().iter().filter(|call| call.operation == Verb::ListMachines).count();
    assert!(lists > 10, "it was looked all the time: {lists}");
    assert!(events(&world, "OrphanFound").await.is_empty());
    world.stop().await;
}

fn ids(world: &World) -> Vec<String> {
    world.cloud().instances().unwrap().into_iter().map(|one| one.provider_id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_takes_an_instance_over_by_its_id_keeps_it() {
    let mut world = World::start_with(Setup::tuned(restless)).await;
    lose(&world, "moved", "fake").await;
    let id = ids(&world).remove(0);
    // The control plane is restored: the same machine with another UID.
    world.stop_core().await;
    let mut restored = machine("moved", "fake");
    restored["spec"]["providerID"] = json!(id);
    world.apply::<Machine>(restored).await;
    world.start_core().await;
    world.until("moved", "Running", in_phase(MachinePhase::Running)).await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(ids(&world), [id]);
    assert_eq!(deletions(&world), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_machine_cannot_take_it_over_is_no_orphan() {
    let mut world = World::start_with(Setup::tuned(restless)).await;
    let spec = json!({
        "region": "local", "image": "fake-1.0",
        "faults": [{ "operation": "CreateMachine", "call": "2-1000", "code": "Internal" }],
    });
    world.apply::<MachineClass>(class("stubborn", &spec)).await;
    lose(&world, "moved", "stubborn").await;
    let before = world.cloud().instances().unwrap().remove(0);
    world.stop_core().await;
    let mut restored = machine("moved", "stubborn");
    restored["spec"]["providerID"] = json!(before.provider_id);
    world.apply::<Machine>(restored).await;
    world.start_core().await;
    sleep(Duration::from_hours(2)).await;
    let after = world.cloud().instances().unwrap();
    let uids: Vec<_> = after.iter().map(|one| &one.identity.machine_uid).collect();
    assert_eq!(uids, [&before.identity.machine_uid], "it has the UID of its former life");
    assert_eq!(deletions(&world), 0);
    assert!(events(&world, "OrphanFound").await.is_empty());
    world.stop().await;
}

/// Whether the watch of Machines has ended for the core of the test below, and cannot be taken up again.
static WATCH_IS_OVER: AtomicBool = AtomicBool::new(false);

#[tokio::test(start_paused = true)]
async fn inv_2_a_machine_that_only_the_api_server_knows_of_keeps_its_instance() {
    let forbids: fn(&Request) -> bool = |asked| {
        let watches = asked.resource == "machines" && ["list", "watch"].contains(&asked.verb);
        watches && WATCH_IS_OVER.load(Ordering::SeqCst)
    };
    let world = World::start_with(Setup { forbids, ..Setup::default() }).await;
    lose(&world, "m", "fake").await;
    let before = world.cloud().instances().unwrap().remove(0);
    WATCH_IS_OVER.store(true, Ordering::SeqCst);
    // Each watch ends by itself after some minutes, sooner than a look can confirm an orphan.
    sleep(Duration::from_mins(8)).await;
    assert_eq!(instances(&world), 1);
    let mut restored = machine("m", "fake");
    restored["spec"]["providerID"] = json!(before.provider_id);
    world.apply::<Machine>(restored).await;
    sleep(Duration::from_hours(2)).await;
    let machine = get(&world, "m").await;
    assert!(machine.status.is_none(), "the core does not see it: {:?}", machine.status);
    assert_eq!((instances(&world), deletions(&world)), (1, 0));
    // Nothing else kept it.
    delete(&world, "m").await;
    until_instances(&world, 0).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_cannot_be_listed_holds_up_no_other() {
    let world = World::start().await;
    let broken = json!({
        "region": "local", "image": "fake-1.0",
        "faults": [{ "operation": "ListMachines", "code": "Unavailable" }],
    });
    world.apply::<MachineClass>(class("a-broken", &broken)).await;
    lose(&world, "lost", "fake").await;
    until_instances(&world, 0).await;
    assert!(!events(&world, "InstancesNotListed").await.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_cannot_be_deleted_is_told_of_and_tried_again() {
    let world = World::start().await;
    let stubborn = json!({
        "region": "local", "image": "fake-1.0",
        "faults": [{ "operation": "DeleteMachine", "call": "1-3", "code": "Internal" }],
    });
    world.apply::<MachineClass>(class("stubborn", &stubborn)).await;
    // Of two classes the first in order is asked.
    Api::<MachineClass>::default_namespaced(world.client())
        .delete("fake", &DeleteParams::default())
        .await
        .unwrap();
    lose(&world, "lost", "stubborn").await;
    until_instances(&world, 0).await;
    assert_eq!(deletions(&world), 4);
    assert!(!events(&world, "OrphanDeleteFailed").await.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_looks_begin_anew_in_the_core_that_leads_next() {
    let mut world = World::start().await;
    lose(&world, "lost", "fake").await;
    let began = world.now();
    sleep(Duration::from_mins(9)).await;
    world.crash_core();
    world.start_core().await;
    until_instances(&world, 0).await;
    assert!(world.now().duration_since(began).as_secs() >= 19 * 60);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_is_left_alone_and_goes_on_at_once_when_it_is_not() {
    let world = World::start().await;
    let paused = |value: Option<&str>| json!({ "metadata": { "annotations": { "ostler.dev/paused": value } } });
    let mut born_paused = machine("m", "fake");
    born_paused["metadata"]["annotations"] = json!({ "ostler.dev/paused": "true" });
    world.apply::<Machine>(born_paused).await;
    world.until("m", "Paused", waits_for(WaitReason::Paused)).await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(instances(&world), 0);
    world.patch_machine("m", paused(None)).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    world.patch_machine("m", paused(Some(""))).await;
    world.until("m", "Paused", waits_for(WaitReason::Paused)).await;
    delete(&world, "m").await;
    sleep(Duration::from_hours(1)).await;
    assert!(is_running(&world.cloud().instances().unwrap()[0], world.now()));
    world.patch_machine("m", paused(Some("false"))).await;
    world.until("m", "gone", gone).await;
    assert_eq!(instances(&world), 0);
    world.stop().await;
}

fn is_running(instance: &Instance, now: Timestamp) -> bool {
    instance.power(now) == Power::Running
}

#[tokio::test(start_paused = true)]
async fn an_orphan_stays_while_its_class_is_paused() {
    let world = World::start().await;
    lose(&world, "lost", "fake").await;
    annotate_class(&world, "fake", Some("true")).await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!((instances(&world), deletions(&world)), (1, 0));
    annotate_class(&world, "fake", None).await;
    until_instances(&world, 0).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_sees_several_instances_of_a_machine_is_a_reason_to_look_at_all() {
    let world = World::start().await;
    let lists = || world.calls().iter().filter(|it| it.operation == Verb::ListMachines).count();
    sleep(Duration::from_mins(2)).await;
    let before = lists();
    assert_eq!(before, 1, "the first look of this core");
    let several = json!({
        "region": "local", "image": "fake-1.0",
        "faults": [{ "operation": "GetMachineStatus", "code": "OutOfRange" }],
    });
    world.apply::<MachineClass>(class("several", &several)).await;
    world.apply::<Machine>(machine("m", "several")).await;
    world.until("m", "told", waits_for(WaitReason::SeveralInstances)).await;
    sleep(Duration::from_mins(2)).await;
    assert!(lists() > before, "long before the period is over");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_orphans_only_a_few_go_at_a_time() {
    let world = World::start_with(Setup::tuned(restless)).await;
    world.apply::<Machine>(machine("m", "fake")).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let cluster = world.cloud().instances().unwrap().remove(0).identity.cluster_id;
    world.cloud().seed(&cluster, 1000).unwrap();
    sleep(Duration::from_mins(10)).await;
    let gone = 1001 - instances(&world);
    assert!((20..=200).contains(&gone), "{gone}");
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    world.stop().await;
}

mod torn {
    //! Classes and secrets deleted before their machines, and Nodes that stay.

    use k8s_openapi::api::core::v1::{Node, Secret};
    use kube::runtime::wait::await_condition;
    use ostler_api::names::{annotation::NOT_MANAGED, finalizer};

    use super::*;

    async fn tear<K>(world: &World, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api = Api::<K>::default_namespaced(world.client());
        api.delete(name, &DeleteParams::default()).await.unwrap();
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // No class names the secret any more, so it went by itself.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(refused) => panic!("{refused}"),
        }
    }

    async fn kept(world: &World) -> Vec<Secret> {
        let all = Api::<Secret>::default_namespaced(world.client());
        let all = all.list(&ListParams::default()).await.unwrap().items;
        let kept = |one: &Secret| one.type_.as_deref() == Some("ostler.dev/last-known-class");
        all.into_iter().filter(kept).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_whose_class_and_secret_were_torn_away_is_still_deleted() {
        let mut world = World::start().await;
        world.apply::<Machine>(machine("m", "fake")).await;
        world.until("m", "Running", in_phase(MachinePhase::Running)).await;
        assert_eq!(kept(&world).await.len(), 1);
        tear::<MachineClass>(&world, "fake").await;
        tear::<Secret>(&world, "fake").await;
        world.crash_core();
        world.start_core().await;
        delete(&world, "m").await;
        world.until("m", "gone", gone).await;
        assert_eq!(instances(&world), 0);
        let deleted = world.calls().into_iter().find(|it| it.operation == Verb::DeleteMachine);
        assert_eq!(deleted.unwrap().outcome.unwrap().word, "OK");
        // The kept copies go with the last machine that needs them.
        let secrets = Api::<Secret>::default_namespaced(world.client());
        while !kept(&world).await.is_empty() {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(secrets.get_opt("fake").await.unwrap().is_none());
        world.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn class_and_secret_stay_until_their_last_user_is_gone_and_not_longer() {
        let world = World::start().await;
        world.apply::<Machine>(machine("m", "fake")).await;
        world.until("m", "Running", in_phase(MachinePhase::Running)).await;
        let classes = Api::<MachineClass>::default_namespaced(world.client());
        let secrets = Api::<Secret>::default_namespaced(world.client());
        classes.delete("fake", &DeleteParams::default()).await.unwrap();
        secrets.delete("fake", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_hours(1)).await;
        assert!(classes.get_opt("fake").await.unwrap().is_some());
        let secret = secrets.get("fake").await.unwrap();
        assert_eq!(secret.metadata.finalizers, Some(vec![finalizer::SECRET.to_owned()]));
        delete(&world, "m").await;
        world.until("m", "gone", gone).await;
        let no_class = |class: Option<&MachineClass>| class.is_none();
        await_condition(classes, "fake", no_class).await.unwrap();
        await_condition(secrets, "fake", |secret: Option<&Secret>| secret.is_none()).await.unwrap();
        world.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_a_machine_is_let_go_of_and_taken_back_when_one_turns_up() {
        let world = World::start().await;
        lose(&world, "lost", "fake").await;
        annotate_class(&world, "fake", Some("true")).await;
        let nodes = Api::<Node>::all(world.client());
        let marked = |node: Option<&Node>| {
            let annotations = node.and_then(|node| node.metadata.annotations.as_ref());
            annotations.is_some_and(|all| all.contains_key(NOT_MANAGED))
        };
        await_condition(nodes.clone(), "lost", marked).await.unwrap();
        let node = nodes.get("lost").await.unwrap();
        let born = node.metadata.creation_timestamp.unwrap().0;
        assert!(world.now().duration_since(born).as_secs() >= 20 * 60);
        assert_eq!(node.metadata.finalizers.unwrap_or_default(), Vec::<String>::new());
        annotate_class(&world, "fake", None).await;
        let mut found = machine("lost", "fake");
        found["spec"]["providerID"] = json!(ids(&world).remove(0));
        world.apply::<Machine>(found).await;
        world.until("lost", "Running", in_phase(MachinePhase::Running)).await;
        let node = nodes.get("lost").await.unwrap();
        assert!(!marked(Some(&node)), "{node:?}");
        assert_eq!(node.metadata.finalizers, Some(vec![finalizer::NODE.to_owned()]));
        world.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_class_that_breaks_a_rule_says_so_on_itself_and_on_its_machines() {
        let world = World::start().await;
        let mut bad = class("bad", &json!({ "region": "local", "image": "fake-1.0" }));
        bad["nodeTemplate"] = json!({
            "capacity": { "cpu": "4", "memory": "8Gi" },
            "instanceType": "small", "region": "local", "zone": "a",
        });
        world.apply::<MachineClass>(bad).await;
        world.apply::<Machine>(machine("m", "bad")).await;
        world.until("m", "waits for the class", waits_for(WaitReason::ClassInvalid)).await;
        let told = events(&world, "ClassInvalid").await;
        assert_eq!(told[0].regarding.clone().unwrap().kind.as_deref(), Some("MachineClass"));
        let capacity = json!({ "nodeTemplate": { "capacity": { "gpu": "0" } } });
        let api = Api::<MachineClass>::default_namespaced(world.client());
        api.patch("bad", &PatchParams::default(), &Patch::Merge(capacity)).await.unwrap();
        world.until("m", "Running", in_phase(MachinePhase::Running)).await;
        world.stop().await;
    }
}
