//! MachineReserves: sets take ready machines before they make any, and no number counts those in reserve. On a paused clock.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::runtime::wait::{Condition, await_condition};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::{annotation, label, taint};
use ostler_api::{MachineClass, MachineDeployment, MachineReserve, MachineSet};
use ostler_lifecycle::reserve::is_in_reserve;
use ostler_tests::objects::{class, gone, instances};
use ostler_tests::tools::root;
use ostler_tests::world::World;
use serde_json::{Value, json};

use crate::freeze::{overshoot, until_frozen};
use crate::sets::{
    machines, patch as patch_set, rest, scale, set, sets, told, until_runs, with_sets,
};

fn reserve(name: &str, kind: &str, target: &str, replicas: Value) -> Value {
    json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "targetRef": { "kind": kind, "name": target }, "replicas": replicas }
    })
}

fn reserves(world: &World) -> Api<MachineReserve> {
    Api::default_namespaced(world.client())
}

async fn until(world: &World, name: &str, what: &str, condition: impl Condition<MachineReserve>) {
    let waited = await_condition(reserves(world), name, condition);
    let Ok(met) = tokio::time::timeout(Duration::from_hours(3), waited).await else {
        let (reserve, machines) = (reserves(world).get_opt(name).await, machines(world).await);
        panic!("{name} was never {what} within hours: {reserve:#?} {machines:#?}");
    };
    met.unwrap();
}

/// It has so many machines, all ready and of the current template, and gave so many.
fn holds(count: i32, given: i64) -> impl Fn(Option<&MachineReserve>) -> bool {
    move |it| {
        let status = it.and_then(|it| it.status.as_ref());
        status.is_some_and(|status| {
            let numbers = [status.replicas, status.ready_replicas, status.updated_replicas];
            numbers == [count; 3]
                && status.given == given
                && status.observed_generation == it.and_then(|it| it.metadata.generation)
        })
    }
}

fn says(type_: &'static str, reason: &'static str) -> impl Fn(Option<&MachineReserve>) -> bool {
    move |it| {
        let mut all = it.iter().flat_map(|it| it.status.iter().flat_map(|it| &it.conditions));
        all.any(|it| it.type_ == type_ && it.reason == reason)
    }
}

async fn edit(world: &World, name: &str, patch: Value) {
    reserves(world).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Names of the machines in reserve.
async fn spares(world: &World) -> BTreeSet<String> {
    let all = machines(world).await;
    all.iter().filter(|it| is_in_reserve(&it.metadata)).map(|it| it.name().to_owned()).collect()
}

/// A driver that needs ten minutes for an instance, a set with so many machines, and a ready reserve.
async fn world(replicas: i32, kept: i32) -> World {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", replicas)).await;
    until_runs(&world, "s", replicas).await;
    world.apply::<MachineReserve>(reserve("r", "MachineSet", "s", json!(kept))).await;
    until(&world, "r", "ready", holds(kept, 0)).await;
    slow(&world).await;
    world
}

/// From now on an instance takes ten minutes.
async fn slow(world: &World) {
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    let patch = json!({ "providerSpec": { "latency": { "create": "10m" } } });
    classes.patch("fake", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn node_of(world: &World, machine: &str) -> Node {
    let nodes = Api::<Node>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    let named = |node: &Node| {
        node.metadata.labels.as_ref().and_then(|it| it.get(label::MACHINE_NAME)).map(String::as_str)
            == Some(machine)
    };
    nodes.into_iter().find(named).unwrap()
}

fn is_closed(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|it| it.taints.as_ref());
    taints.into_iter().flatten().any(|it| it.key == taint::RESERVE)
}

fn scale_down_disabled(node: &Node) -> bool {
    let all = node.metadata.annotations.as_ref();
    all.is_some_and(|all| all.contains_key(annotation::SCALE_DOWN_DISABLED))
}

/// A reserve fills, gives and goes.
pub(crate) async fn life_of_a_reserve(world: &World) {
    world.apply::<MachineSet>(set("s", 0)).await;
    world.apply::<MachineReserve>(reserve("r", "MachineSet", "s", json!(1))).await;
    until(world, "r", "ready", holds(1, 0)).await;
    scale(world, "s", 1).await;
    until(world, "r", "refilled", holds(1, 1)).await;
    edit(world, "r", json!({ "spec": { "replicas": 0 } })).await;
    until(world, "r", "empty", holds(0, 1)).await;
    reserves(world).delete("r", &DeleteParams::default()).await.unwrap();
    sets(world).delete("s", &DeleteParams::default()).await.unwrap();
    let gone = |set: Option<&MachineSet>| set.is_none();
    await_condition(sets(world), "s", gone).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_set_that_grows_has_a_ready_machine_within_a_second_and_the_reserve_makes_another() {
    let world = world(1, 1).await;
    let spare = spares(&world).await.pop_first().unwrap();
    let node = node_of(&world, &spare).await;
    assert!(is_closed(&node) && scale_down_disabled(&node));
    let of_target = sets(&world).get_scale("s").await.unwrap().status.unwrap();
    assert_eq!(of_target.replicas, 1, "none of the reserve is counted");
    let before = tokio::time::Instant::now();
    scale(&world, "s", 2).await;
    let opened = async {
        while is_closed(&node_of(&world, &spare).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    opened.await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    let node = node_of(&world, &spare).await;
    assert!(!scale_down_disabled(&node), "{node:?}");
    until_runs(&world, "s", 2).await;
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    until(&world, "r", "refilled", holds(1, 1)).await;
    assert!(before.elapsed() >= Duration::from_mins(10), "the new one takes its time");
    let taken = ostler_tests::objects::get(&world, &spare).await;
    assert_eq!(taken.metadata.labels.as_ref().unwrap()["app"], "s");
    assert_eq!(taken.label(label::RESERVE), None);
    assert_eq!(taken.spec.node_template, None);
    assert_eq!(told(&world, "TookFromReserve").await.len(), 1);
    assert_eq!(instances(&world), 3);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_wants_more_than_there_are_makes_the_rest() {
    let world = world(0, 2).await;
    scale(&world, "s", 5).await;
    until_runs(&world, "s", 5).await;
    until(&world, "r", "refilled", holds(2, 2)).await;
    rest().await;
    assert_eq!(instances(&world), 7);
    world.stop().await;
}

/// Both have the same template.
#[tokio::test(start_paused = true)]
async fn of_two_sets_that_want_the_last_one_one_gets_it_and_the_other_makes_its_own() {
    let world = world(0, 1).await;
    edit(&world, "r", json!({ "spec": { "targetRef": { "name": "s" } } })).await;
    let mut twin = set("s", 0);
    twin["metadata"]["name"] = json!("twin");
    world.apply::<MachineSet>(twin).await;
    until_runs(&world, "twin", 0).await;
    edit(&world, "r", json!({ "spec": { "replicas": 1 } })).await;
    let (one, other) = (scale(&world, "s", 1), scale(&world, "twin", 1));
    tokio::join!(one, other);
    until_runs(&world, "s", 1).await;
    until_runs(&world, "twin", 1).await;
    until(&world, "r", "refilled", holds(1, 1)).await;
    assert_eq!(instances(&world), 3);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_is_replaced_by_one_of_the_reserve_at_once() {
    let world = world(2, 1).await;
    let spare = spares(&world).await.pop_first().unwrap();
    let victim =
        machines(&world).await.into_iter().find(|it| !is_in_reserve(&it.metadata)).unwrap();
    ostler_tests::objects::delete(&world, victim.name()).await;
    world.until(victim.name(), "gone", gone).await;
    let before = tokio::time::Instant::now();
    until_runs(&world, "s", 2).await;
    assert!(before.elapsed() < Duration::from_mins(1), "{:?}", before.elapsed());
    assert!(!spares(&world).await.contains(&spare));
    until(&world, "r", "refilled", holds(1, 1)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_in_leaves_the_reserve_alone_and_what_is_lowered_loses_its_newest() {
    let world = world(3, 2).await;
    let before = spares(&world).await;
    scale(&world, "s", 1).await;
    until_runs(&world, "s", 1).await;
    rest().await;
    assert_eq!(spares(&world).await, before);
    let oldest = machines(&world).await.into_iter().filter(|it| is_in_reserve(&it.metadata));
    let age = |it: &Machine| {
        (it.metadata.creation_timestamp.as_ref().map(|at| at.0), it.name().to_owned())
    };
    let oldest = oldest.min_by_key(age).unwrap();
    // As an autoscaler sizes it.
    let lower = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
    reserves(&world).patch_scale("r", &PatchParams::default(), &lower).await.unwrap();
    until(&world, "r", "smaller", holds(1, 0)).await;
    // The other one is drained and deleted.
    rest().await;
    assert_eq!(spares(&world).await, [oldest.name().to_owned()].into());
    let scale = reserves(&world).get_scale("r").await.unwrap();
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("ostler.dev/reserve=r"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_machines_go_with_their_target_and_with_their_reserve() {
    let world = world(1, 2).await;
    sets(&world).delete("s", &DeleteParams::default()).await.unwrap();
    until(&world, "r", "without target", says("Valid", "TargetNotFound")).await;
    until(&world, "r", "empty", holds(0, 0)).await;
    rest().await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (0, 0));
    // The set comes back, and so do the machines.
    world.apply::<MachineSet>(set("s", 0)).await;
    until(&world, "r", "ready", holds(2, 0)).await;
    reserves(&world).delete("r", &DeleteParams::default()).await.unwrap();
    let none = await_condition(reserves(&world), "r", |it: Option<&MachineReserve>| it.is_none());
    none.await.unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (0, 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_target_gets_no_refill_and_keeps_what_there_is() {
    let world = world(1, 2).await;
    let s = sets(&world).get("s").await.unwrap();
    overshoot(&world, &s, "app").await;
    until_frozen(&world, true).await;
    let lost = spares(&world).await.pop_first().unwrap();
    let all = Api::<Machine>::default_namespaced(world.client());
    all.delete(&lost, &DeleteParams::default()).await.unwrap();
    until(&world, "r", "frozen", says("Ready", "TargetFrozen")).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let kept = spares(&world).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(!kept.contains(&lost));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_at_its_maximum_keeps_fewer_and_a_share_follows_its_replicas() {
    let world = world(1, 1).await;
    let most = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    patch_set(&world, "s", json!({ "metadata": { "annotations": { most: "4" } } })).await;
    edit(&world, "r", json!({ "spec": { "replicas": "300%" } })).await;
    until(&world, "r", "three", holds(3, 0)).await;
    scale(&world, "s", 3).await;
    until(&world, "r", "limited", says("LimitedByMax", "TargetMaximum")).await;
    until(&world, "r", "one", holds(1, 2)).await;
    rest().await;
    assert_eq!(instances(&world), 4);
    world.stop().await;
}

/// The calls of a HorizontalPodAutoscaler: GET of the Scale, pods by the selector, PUT of the Scale that was read.
#[tokio::test(start_paused = true)]
async fn a_horizontal_pod_autoscaler_sizes_a_number_and_is_refused_a_share() {
    let world = world(3, 1).await;
    let api = reserves(&world);
    let mut scale = api.get_scale("r").await.unwrap();
    let status = scale.status.clone().unwrap();
    assert_eq!((scale.spec.clone().unwrap().replicas, status.replicas), (Some(1), 1));
    let selected = ListParams::default().labels(&status.selector.unwrap());
    let own = Api::<Machine>::default_namespaced(world.client()).list(&selected).await.unwrap();
    let own: BTreeSet<_> = own.items.iter().map(|it| it.name().to_owned()).collect();
    assert_eq!(own, spares(&world).await);
    let pods = Api::<Pod>::default_namespaced(world.client()).list(&selected).await.unwrap();
    assert!(pods.items.is_empty());
    scale.spec.as_mut().unwrap().replicas = Some(2);
    let put = async |scale: &Scale| api.replace_scale("r", &PostParams::default(), scale).await;
    let sized = put(&scale).await.unwrap();
    assert_eq!(sized.spec.unwrap().replicas, Some(2));
    until(&world, "r", "two", holds(2, 0)).await;
    let refused = put(&scale).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(it) if it.code == 409), "read before: {refused}");

    edit(&world, "r", json!({ "spec": { "replicas": "34%" } })).await;
    scale.metadata.resource_version = None;
    let patch = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
    for answer in [
        api.get_scale("r").await,
        put(&scale).await,
        api.patch_scale("r", &PatchParams::default(), &patch).await,
    ] {
        let Err(kube::Error::Api(refused)) = answer else { panic!("{answer:?}") };
        assert_eq!(refused.code, 500);
        assert!(refused.message.contains("34% is of the type string"), "{refused:?}");
    }
    let kept = api.get("r").await.unwrap().spec.replicas;
    assert_eq!(kept, Some(IntOrString::String("34%".to_owned())));
    until(&world, "r", "a share", holds(2, 0)).await;
    world.stop().await;
}

/// The deployment says first that it wants more, and its set only then: the reserve, which may have none any more, waits.
#[tokio::test(start_paused = true)]
async fn a_target_that_grows_to_its_maximum_takes_what_the_reserve_may_not_keep() {
    let world = World::start_with(with_sets()).await;
    let most = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    let mut limited = deployment(1);
    limited["metadata"]["annotations"] = json!({ most: "3" });
    world.apply::<MachineDeployment>(limited).await;
    let deployments = Api::<MachineDeployment>::default_namespaced(world.client());
    await_condition(deployments.clone(), "d", complete(1)).await.unwrap();
    world.apply::<MachineReserve>(reserve("r", "MachineDeployment", "d", json!(2))).await;
    until(&world, "r", "ready", holds(2, 0)).await;
    slow(&world).await;
    let before = tokio::time::Instant::now();
    let grow = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    deployments.patch_scale("d", &PatchParams::default(), &grow).await.unwrap();
    await_condition(deployments, "d", complete(3)).await.unwrap();
    assert!(before.elapsed() < Duration::from_mins(1), "{:?}", before.elapsed());
    until(&world, "r", "empty", holds(0, 2)).await;
    rest().await;
    assert_eq!(instances(&world), 3);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_somebody_takes_away_comes_back_while_the_machine_is_in_reserve() {
    let world = world(1, 1).await;
    let spare = spares(&world).await.pop_first().unwrap();
    let name = node_of(&world, &spare).await.metadata.name.unwrap();
    let nodes = Api::<Node>::all(world.client());
    let open = Patch::Merge(json!({ "spec": { "taints": null } }));
    nodes.patch(&name, &PatchParams::default(), &open).await.unwrap();
    let closed = await_condition(nodes, &name, |node: Option<&Node>| node.is_some_and(is_closed));
    tokio::time::timeout(Duration::from_mins(1), closed).await.unwrap().unwrap();
    world.stop().await;
}

fn deployment(replicas: i32) -> Value {
    let mut deployment = set("d", replicas);
    deployment["kind"] = json!("MachineDeployment");
    deployment["spec"]["strategy"] =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    deployment
}

fn complete(replicas: i32) -> impl Fn(Option<&MachineDeployment>) -> bool {
    move |it| {
        it.is_some_and(|it| {
            let status = it.status.clone().unwrap_or_default();
            let all = [status.replicas, status.updated_replicas, status.available_replicas];
            all == [replicas; 3] && status.observed_generation == it.metadata.generation
        })
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_rollout_the_reserve_rolls_first_and_the_surge_draws_on_it() {
    let world = World::start_with(with_sets()).await;
    world
        .apply::<MachineClass>(class(
            "slow",
            &json!({ "region": "eu-1", "image": "linux-1", "machineType": "small" }),
        ))
        .await;
    world.apply::<MachineDeployment>(deployment(3)).await;
    let deployments = Api::<MachineDeployment>::default_namespaced(world.client());
    let until_complete = |replicas: i32| {
        let waited = await_condition(deployments.clone(), "d", complete(replicas));
        tokio::time::timeout(Duration::from_hours(3), waited)
    };
    until_complete(3).await.unwrap().unwrap();
    world.apply::<MachineReserve>(reserve("r", "MachineDeployment", "d", json!(2))).await;
    until(&world, "r", "ready", holds(2, 0)).await;
    let before = spares(&world).await;
    let edit =
        json!({ "spec": { "template": { "metadata": { "annotations": { "edited": "yes" } } } } });
    deployments.patch("d", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    until_complete(3).await.unwrap().unwrap();
    let refilled = |it: Option<&MachineReserve>| {
        it.and_then(|it| it.status.as_ref())
            .is_some_and(|it| it.ready_replicas == 2 && it.given >= 1)
    };
    until(&world, "r", "refilled", refilled).await;
    rest().await;
    assert!(spares(&world).await.is_disjoint(&before));
    let all = machines(&world).await;
    assert!(all.iter().all(|it| it.annotation("edited") == Some("yes")));
    assert_eq!((all.len(), instances(&world)), (5, 5));
    assert!(all.iter().all(|it| it.phase() == MachinePhase::Running));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_moment_of_a_take_leaves_as_many_as_wanted() {
    for wait in [0, 20, 200] {
        let mut world = world(1, 2).await;
        scale(&world, "s", 3).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        world.crash_core();
        world.start_core().await;
        until_runs(&world, "s", 3).await;
        until(&world, "r", "refilled", |it: Option<&MachineReserve>| {
            it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.ready_replicas == 2)
        })
        .await;
        rest().await;
        assert_eq!(instances(&world), 5, "{wait}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserve_says_what_is_wrong_with_it() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineReserve>(reserve("r", "MachineSet", "s", json!(1))).await;
    until(&world, "r", "without target", says("Valid", "TargetNotFound")).await;
    let mut other = set("s", 0);
    other["spec"]["template"]["spec"]["class"]["name"] = json!("absent");
    world.apply::<MachineSet>(other).await;
    until(&world, "r", "without class", says("Valid", "ClassNotFound")).await;
    world
        .apply::<MachineClass>(class(
            "absent",
            &json!({ "region": "eu-1", "image": "linux-1", "machineType": "small" }),
        ))
        .await;
    until(&world, "r", "ready", holds(1, 0)).await;
    world.stop().await;
}

fn example(file: &str) -> Vec<Value> {
    let path = root().join("deploy/examples").join(file);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// An object of any kind.
async fn apply(world: &World, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let types = object.types.clone().unwrap();
    let kind = GroupVersionKind::try_from(&types).unwrap();
    let plural = format!("{}s", kind.kind.to_lowercase()).replace("classs", "classes");
    let kind = ApiResource::from_gvk_with_plural(&kind, &plural);
    let name = object.metadata.name.clone().unwrap();
    let api = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(world.client(), namespace, &kind),
        None => Api::all_with(world.client(), &kind),
    };
    api.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&object)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_examples_are_accepted_and_the_reserve_is_ready_for_the_workers() {
    let world = World::start_with(with_sets()).await;
    // The autoscaler brings the definition of its kind.
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    apply(&world, &json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "capacitybuffers.autoscaling.x-k8s.io" },
        "spec": {
            "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
            "names": { "kind": "CapacityBuffer", "plural": "capacitybuffers", "singular": "capacitybuffer" },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": open }
                } }
            }]
        }
    }))
    .await;
    for file in [
        "fake/workers.yaml",
        "reserve/reserve.yaml",
        "reserve/placeholders.yaml",
        "reserve/capacity-buffer.yaml",
    ] {
        for object in example(file) {
            apply(&world, &object).await;
        }
    }
    until(&world, "workers", "ready", holds(1, 0)).await;
    world.stop().await;
}

/// A pod of the example, on the Node of a machine.
fn placeholder(node: &str) -> (PriorityClass, Pod) {
    let all = example("reserve/placeholders.yaml");
    let of = |kind: &str| all.iter().find(|it| it["kind"] == kind).unwrap().clone();
    let mut pod = of("Deployment")["spec"]["template"].take();
    pod["metadata"]["name"] = json!("placeholder");
    pod["spec"]["nodeName"] = json!(node);
    (serde_json::from_value(of("PriorityClass")).unwrap(), serde_json::from_value(pod).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_placeholders() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 1)).await;
    until_runs(&world, "s", 1).await;
    let machine = machines(&world).await.remove(0);
    let pods = Api::<Pod>::default_namespaced(world.client());
    let (class, pod) = placeholder(machine.node_name().unwrap());
    let classes = Api::<PriorityClass>::all(world.client());
    classes.create(&PostParams::default(), &class).await.unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let before = tokio::time::Instant::now();
    scale(&world, "s", 0).await;
    world.until(machine.name(), "gone", gone).await;
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
    assert!(pods.get_opt("placeholder").await.unwrap().is_none());
    world.stop().await;
}
