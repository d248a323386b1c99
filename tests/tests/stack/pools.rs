//! MachinePools: a group of the fake cloud, each instance of which is a machine. On a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::{MachineClass, MachinePool};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{class, delete, instances, nodes, waits_for};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

pub(crate) fn pool(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "MachinePool",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "class": { "kind": "MachineClass", "name": "group" } }
            }
        }
    })
}

/// A class whose user data bring a token of their own.
pub(crate) async fn start() -> World {
    start_with(Setup::default()).await
}

pub(crate) async fn start_with(setup: Setup) -> World {
    let world = World::start_with(setup).await;
    let user_data = "kubelet --token=p00lex.0123456789abcdef \
                     --register-with-taints=node.machine.sapcloud.io/instance-not-ready=:NoSchedule";
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "group", "namespace": "default" },
        "stringData": { "userData": user_data, "accessToken": "t" }
    });
    world.apply::<Secret>(secret).await;
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": { "name": "bootstrap-token-p00lex", "namespace": "kube-system" },
        "stringData": {
            "token-id": "p00lex", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"
        }
    });
    let tokens = Api::<Secret>::namespaced(world.client(), "kube-system");
    let token = serde_json::from_value(token).unwrap();
    tokens.create(&PostParams::default(), &token).await.unwrap();
    let spec = json!({ "region": "local", "image": "fake-1.0" });
    let mut of_group = class("group", &spec);
    of_group["secretRef"]["name"] = json!("group");
    world.apply::<MachineClass>(of_group).await;
    world
}

pub(crate) fn pools(world: &World) -> Api<MachinePool> {
    Api::default_namespaced(world.client())
}

pub(crate) async fn machines(world: &World) -> Vec<Machine> {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

pub(crate) async fn until(world: &World, what: &str, condition: impl Condition<MachinePool>) {
    until_of(world, "p", what, condition).await;
}

async fn until_of(world: &World, name: &str, what: &str, condition: impl Condition<MachinePool>) {
    // A pool is large, and so is a future that holds several.
    let waited = Box::pin(await_condition(pools(world), name, condition));
    let Ok(met) = tokio::time::timeout(Duration::from_hours(3), waited).await else {
        let (pool, machines) = (pools(world).get_opt(name).await, machines(world).await);
        panic!("the pool was never {what} within hours: {pool:#?} {machines:#?}");
    };
    met.unwrap();
}

/// All its machines run, with the current model, and there are so many.
fn runs(count: i32) -> impl Fn(Option<&MachinePool>) -> bool {
    move |pool| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.is_some_and(|status| {
            status.ready_replicas == count
                && status.replicas == count
                && status.up_to_date_replicas == count
                && status.operation.is_none()
                && status.observed_generation == pool.and_then(|it| it.metadata.generation)
        })
    }
}

pub(crate) async fn until_runs(world: &World, count: i32) {
    until(world, &format!("{count} running machines"), runs(count)).await;
}

pub(crate) async fn scale(world: &World, replicas: i32) {
    scale_of(world, "p", replicas).await;
}

async fn scale_of(world: &World, name: &str, replicas: i32) {
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    pools(world).patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn patch(world: &World, patch: Value) {
    pools(world).patch("p", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A pool that grows, loses a machine, and goes.
pub(crate) async fn life_of_a_pool(world: &World) {
    world.apply::<MachinePool>(pool("p", 1)).await;
    until_runs(world, 1).await;
    scale(world, 2).await;
    until_runs(world, 2).await;
    pools(world).delete("p", &DeleteParams::default()).await.unwrap();
    until(world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
}

pub(crate) async fn rest() {
    tokio::time::sleep(Duration::from_mins(3)).await;
}

pub(crate) fn ids(world: &World) -> Vec<String> {
    let all = world.cloud().instances().unwrap();
    all.into_iter().map(|it| it.provider_id).collect()
}

/// How often a driver was asked for this.
pub(crate) fn asked(world: &World, verb: Verb) -> usize {
    world.calls().iter().filter(|call| call.operation == verb).count()
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_shrinks_goes_to_zero_and_comes_back() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    assert_eq!((instances(&world), nodes(&world).await), (3, 3));
    let scale_of = pools(&world).get_scale("p").await.unwrap();
    let selector = scale_of.status.unwrap().selector;
    assert_eq!(selector.as_deref(), Some("cluster.x-k8s.io/pool-name=p"));
    for replicas in [6, 2, 0, 1] {
        scale(&world, replicas).await;
        until_runs(&world, replicas).await;
        rest().await;
        let count = usize::try_from(replicas).unwrap();
        assert_eq!((machines(&world).await.len(), instances(&world)), (count, count));
        assert_eq!(nodes(&world).await, count);
    }
    let owner = &machines(&world).await[0].metadata.owner_references.clone().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("MachinePool", Some(true)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_a_user_deletes_and_an_instance_that_the_cloud_loses_come_back() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    let first = machines(&world).await.remove(0);
    delete(&world, first.name()).await;
    until(&world, "short of one", |it: Option<&MachinePool>| !runs(3)(it)).await;
    until_runs(&world, 3).await;
    rest().await;
    let lost = machines(&world).await.remove(0).provider_id().unwrap().to_string();
    assert_ne!(lost, first.provider_id().unwrap().to_string());
    world.cloud().remove(std::slice::from_ref(&lost)).unwrap();
    until(&world, "short of one", |it: Option<&MachinePool>| !runs(3)(it)).await;
    until_runs(&world, 3).await;
    rest().await;
    assert!(!ids(&world).contains(&lost));
    assert_eq!((instances(&world), machines(&world).await.len()), (3, 3));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_version_rolls_through_the_instances_within_the_surge() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    patch(&world, json!({ "spec": { "template": { "spec": { "version": "v2" } } } })).await;
    let rolled = async {
        loop {
            let there = machines(&world).await;
            let ready = there.iter().filter(|it| it.phase() == MachinePhase::Running).count();
            assert!(there.len() <= 4 && ready >= 3, "{} machines, {ready} ready", there.len());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = until_runs(&world, 3) => {}
        () = rolled => {}
    }
    rest().await;
    assert!(ids(&world).iter().all(|id| !before.contains(id)), "all are new");
    assert_eq!((instances(&world), machines(&world).await.len()), (3, 3));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_lost_is_made_again() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    let group = pools(&world).get("p").await.unwrap().status.unwrap().provider_id.unwrap();
    world.cloud().remove_group(group.as_str()).unwrap();
    until(&world, "without it", |it: Option<&MachinePool>| !runs(2)(it)).await;
    until_runs(&world, 2).await;
    rest().await;
    let made = pools(&world).get("p").await.unwrap().status.unwrap().provider_id.unwrap();
    assert_ne!(group, made);
    assert_eq!((instances(&world), machines(&world).await.len()), (2, 2));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_deleted_while_the_driver_is_away_takes_everything_with_it_when_that_is_back()
 {
    let mut world = start().await;
    world.apply::<MachinePool>(pool("p", 2)).await;
    until_runs(&world, 2).await;
    world.crash_driver();
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    rest().await;
    assert!(pools(&world).get_opt("p").await.unwrap().is_some());
    world.start_driver();
    until(&world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
    assert_eq!((instances(&world), machines(&world).await.len()), (0, 0));
    assert!(world.cloud().groups(|_| true).unwrap().is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_again_and_again_makes_and_deletes_none_too_many() {
    let mut world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    for step in 1..=12 {
        tokio::time::sleep(Duration::from_millis(700 * step)).await;
        if step == 6 {
            scale(&world, 1).await;
        }
        if step == 9 {
            scale(&world, 4).await;
        }
        world.crash_core();
        world.start_core().await;
    }
    until_runs(&world, 4).await;
    rest().await;
    assert_eq!((instances(&world), machines(&world).await.len()), (4, 4));
    assert_eq!(world.cloud().groups(|_| true).unwrap().len(), 1);
    world.stop().await;
}

/// How many instances the region has room for.
async fn room(world: &World, limit: Option<u32>) {
    let patch = json!({ "providerSpec": { "capacity": { "maxInstances": limit } } });
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    classes.patch("group", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    rest().await;
}

fn wants(count: i32) -> impl Fn(Option<&MachinePool>) -> bool {
    move |pool| {
        let observed = pool.and_then(|pool| pool.status.as_ref()?.observed.clone());
        observed.is_some_and(|it| it.desired == count && it.current == 0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_has_none_of_its_instances_and_can_make_none_is_scaled_in_and_deleted() {
    let world = start().await;
    room(&world, Some(0)).await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until(&world, "without room", wants(3)).await;
    scale(&world, 0).await;
    until(&world, "scaled in", wants(0)).await;
    room(&world, None).await;
    assert_eq!(instances(&world), 0, "none is wanted any more");

    let lose_all = async || {
        scale(&world, 1).await;
        until_runs(&world, 1).await;
        room(&world, Some(0)).await;
        world.cloud().remove(&ids(&world)).unwrap();
        rest().await;
        assert_eq!((instances(&world), machines(&world).await.len()), (0, 1), "it may be there");
    };
    lose_all().await;
    let lost = machines(&world).await.remove(0);
    delete(&world, lost.name()).await;
    until_no_machine(&world, lost.name()).await;
    room(&world, None).await;
    lose_all().await;
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
    assert!(world.cloud().groups(|_| true).unwrap().is_empty());
    world.stop().await;
}

/// Neither a label value nor the name of a Node can be that long, and the Machines are found by both.
#[tokio::test(start_paused = true)]
async fn a_pool_whose_name_has_253_characters_grows_shrinks_and_goes() {
    let world = start().await;
    let name = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    let mut long = pool(&name, 2);
    long["spec"]["template"]["metadata"]["labels"]["app"] = json!("long");
    world.apply::<MachinePool>(long).await;
    for replicas in [2, 4, 1] {
        scale_of(&world, &name, replicas).await;
        until_of(&world, &name, &format!("{replicas} running machines"), runs(replicas)).await;
        rest().await;
        let count = usize::try_from(replicas).unwrap();
        let scale_of = pools(&world).get_scale(&name).await.unwrap();
        let found = ListParams::default().labels(&scale_of.status.unwrap().selector.unwrap());
        let api = Api::<Machine>::default_namespaced(world.client());
        let found = api.list(&found).await.unwrap().items;
        assert_eq!((found.len(), machines(&world).await.len()), (count, count));
        assert_eq!((instances(&world), nodes(&world).await), (count, count));
        assert!(found.iter().all(|it| it.metadata.labels.as_ref().unwrap()["app"] == "long"));
    }
    pools(&world).delete(&name, &DeleteParams::default()).await.unwrap();
    until_of(&world, &name, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (0, 0));
    world.stop().await;
}

async fn until_no_machine(world: &World, name: &str) {
    let api = Api::<Machine>::default_namespaced(world.client());
    let gone = await_condition(api, name, |machine: Option<&Machine>| machine.is_none());
    tokio::time::timeout(Duration::from_hours(3), gone).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_written_late_for_a_pool_that_is_gone_can_be_deleted() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 1)).await;
    until_runs(&world, 1).await;
    let mut late = machines(&world).await.remove(0);
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", |pool: Option<&MachinePool>| pool.is_none()).await;
    // As a request of the core arrives that was on its way for long, or from a backup.
    late.metadata.resource_version = None;
    late.metadata.uid = None;
    let api = Api::<Machine>::default_namespaced(world.client());
    api.create(&PostParams::default(), &late).await.unwrap();
    delete(&world, late.name()).await;
    until_no_machine(&world, late.name()).await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_wait_for_a_pool_go_when_its_finalizer_is_taken_away_by_hand() {
    let mut world = start().await;
    world.apply::<MachinePool>(pool("p", 1)).await;
    until_runs(&world, 1).await;
    world.stop_driver().await;
    pools(&world).delete("p", &DeleteParams::default()).await.unwrap();
    let left = machines(&world).await.remove(0);
    delete(&world, left.name()).await;
    world.until(left.name(), "drained", waits_for(WaitReason::PoolDeletion)).await;
    patch(&world, json!({ "metadata": { "finalizers": [] } })).await;
    world.start_driver();
    until_no_machine(&world, left.name()).await;
    assert_eq!(instances(&world), 0, "the group goes first, as an orphan");
}

/// A pass writes a hundred; the next one came with the next read of the group, a minute later.
#[tokio::test(start_paused = true)]
async fn a_template_that_changes_reaches_hundreds_of_machines_within_seconds() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 250)).await;
    until_runs(&world, 250).await;
    rest().await;
    patch(&world, json!({ "spec": { "template": { "spec": { "drainTimeout": "90s" } } } })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let has_it = |machine: &Machine| json!(machine.spec.drain_timeout) == json!("90s");
    assert_eq!(machines(&world).await.iter().filter(|it| has_it(it)).count(), 250);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_read_each_minute_at_rest_and_each_ten_seconds_while_an_instance_does_not_boot()
{
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 1)).await;
    until_runs(&world, 1).await;
    rest().await;
    let reads_in_ten_minutes = async || {
        let before = asked(&world, Verb::GetPoolStatus);
        tokio::time::sleep(Duration::from_mins(10)).await;
        asked(&world, Verb::GetPoolStatus) - before
    };
    let reads = reads_in_ten_minutes().await;
    assert!((9..=11).contains(&reads), "at rest: {reads}");
    let slow = json!({ "groups": { "slowEvery": 1, "slowBoot": "1h" } });
    let patch = Patch::Merge(json!({ "providerSpec": slow }));
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    classes.patch("group", &PatchParams::default(), &patch).await.unwrap();
    scale(&world, 2).await;
    rest().await;
    let reads = reads_in_ten_minutes().await;
    assert!((50..=61).contains(&reads), "one boots: {reads}");
    world.stop().await;
}
