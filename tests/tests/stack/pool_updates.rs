//! Changes of a class that reach the instances of a pool as they run, or in place. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::annotation::{RESTARTED_AT, UPDATE_BEGUN, UPDATE_INSTANCE};
use ostler_api::{MachineClass, MachinePool};
use ostler_driver_fake::fault::Verb;
use ostler_driver_fake::spec::Resource;
use ostler_tests::objects::{instances, nodes};
use ostler_tests::world::World;
use serde_json::{Value, json};

use crate::pools::{asked, ids, machines, patch, pool, pools, rest, start, until, until_runs};

/// Edits the class, and waits until the pool has seen that.
async fn edit_class(world: &World, spec: Value) {
    let model = |pool: &MachinePool| pool.status.as_ref().and_then(|it| it.model_hash.clone());
    let before = model(&pools(world).get("p").await.unwrap());
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let patch = Patch::Merge(json!({ "providerSpec": spec }));
    api.patch("group", &PatchParams::default(), &patch).await.unwrap();
    let other = move |pool: Option<&MachinePool>| pool.and_then(model) != before;
    until(world, "of another model", other).await;
}

/// The value of a tag of every VM.
fn tags(world: &World, key: &str) -> Vec<String> {
    let all = world.cloud().instances().unwrap();
    let tag = |it: &ostler_driver_fake::cloud::Instance| {
        it.tags(Resource::Vm).tags.get(key).cloned().unwrap_or_default()
    };
    all.iter().map(tag).collect()
}

fn images(world: &World) -> Vec<String> {
    let all = world.cloud().instances().unwrap();
    all.into_iter().map(|it| it.image).collect()
}

/// Never fewer Running Machines than this, and never more instances than that, until the pool is as wanted.
pub(crate) async fn within(world: &World, count: i32, least: usize, most: usize) {
    let watch = async {
        loop {
            let (all, there) = (machines(world).await, instances(world));
            let ready = all.iter().filter(|it| it.phase() == MachinePhase::Running).count();
            assert!(there <= most && ready >= least, "{there} instances, {ready} ready");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = until_runs(world, count) => {}
        () = watch => {}
    }
}

#[tokio::test(start_paused = true)]
async fn tags_of_a_class_reach_running_instances_and_new_ones_and_replace_none() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    for id in &before {
        world.cloud().tag_as_stranger(id, Resource::Vm, ("billing", "team-7")).unwrap();
    }
    edit_class(&world, json!({ "tags": { "vm": { "k": "2" } } })).await;
    within(&world, 3, 3, 3).await;
    rest().await;
    assert_eq!(ids(&world), before);
    assert_eq!(tags(&world, "k"), ["2", "2", "2"]);
    assert_eq!(tags(&world, "billing"), ["team-7", "team-7", "team-7"], "those of others stay");
    assert_eq!(asked(&world, Verb::UpdatePoolMachine), 3, "each was asked for once");
    patch(&world, json!({ "spec": { "replicas": 4 } })).await;
    until_runs(&world, 4).await;
    assert_eq!(tags(&world, "k"), ["2", "2", "2", "2"], "the group has the model");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_running_instances_cannot_take_rolls_and_the_driver_is_asked_once() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    edit_class(&world, json!({ "image": "fake-2.0" })).await;
    within(&world, 3, 3, 4).await;
    rest().await;
    assert!(ids(&world).iter().all(|id| !before.contains(id)), "all are new");
    assert_eq!(asked(&world, Verb::UpdatePoolMachine), 1, "for all of one old model");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_and_a_size_that_change_at_once_roll_and_scale_within_the_budget_of_both() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    for (replicas, least, most) in [(5, 3, 6), (2, 2, 5)] {
        let before = ids(&world);
        let version = json!({ "spec": { "version": format!("v{replicas}") } });
        patch(&world, json!({ "spec": { "replicas": replicas, "template": version } })).await;
        within(&world, replicas, least, most).await;
        rest().await;
        assert!(ids(&world).iter().all(|id| !before.contains(id)), "{replicas}: all are new");
        assert_eq!(instances(&world), usize::try_from(replicas).unwrap());
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_in_the_middle_of_updates_finishes_them() {
    let mut world = start().await;
    world.apply::<MachinePool>(pool("p", 5)).await;
    until_runs(&world, 5).await;
    let before = ids(&world);
    edit_class(
        &world,
        json!({
            "tags": { "vm": { "k": "2" } }, "latency": { "update": "3s" }
        }),
    )
    .await;
    for step in 1..=4 {
        tokio::time::sleep(Duration::from_millis(900 * step)).await;
        world.crash_core();
        if step == 2 {
            world.crash_driver();
            world.start_driver();
        }
        world.start_core().await;
    }
    until_runs(&world, 5).await;
    rest().await;
    assert_eq!((ids(&world), tags(&world, "k")), (before, vec!["2".to_owned(); 5]));
    let status = pools(&world).get("p").await.unwrap().status.unwrap();
    assert_eq!((status.hot_update, status.retries), (None, Vec::new()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instances_are_updated_in_their_places_one_after_the_other() {
    let world = start().await;
    let mut wanted = pool("p", 3);
    wanted["spec"]["strategy"] = json!({ "type": "InPlaceUpdate" });
    world.apply::<MachinePool>(wanted).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    edit_class(&world, json!({ "image": "fake-2.0" })).await;
    within(&world, 3, 2, 3).await;
    rest().await;
    assert_eq!(ids(&world), before, "no instance is another one");
    assert_eq!(images(&world), ["fake-2.0", "fake-2.0", "fake-2.0"]);
    assert_eq!((instances(&world), nodes(&world).await), (3, 3));
    for machine in machines(&world).await {
        assert_eq!(machine.phase(), MachinePhase::Running);
        for mark in [UPDATE_BEGUN, UPDATE_INSTANCE] {
            assert_eq!(machine.annotation(mark), None);
        }
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_user_has_one_instance_updated_in_its_place_and_the_others_stay() {
    let world = start().await;
    let mut wanted = pool("p", 3);
    wanted["spec"]["strategy"] = json!({ "type": "OnDelete" });
    world.apply::<MachinePool>(wanted).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    edit_class(&world, json!({ "image": "fake-2.0" })).await;
    rest().await;
    let one = machines(&world).await[1].name().to_owned();
    let api = Api::<Machine>::default_namespaced(world.client());
    let wish = Patch::Merge(json!({ "metadata": { "annotations": { UPDATE_INSTANCE: "yes" } } }));
    api.patch(&one, &PatchParams::default(), &wish).await.unwrap();
    until(&world, "one of the current model", |it: Option<&MachinePool>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.up_to_date_replicas == 1)
    })
    .await;
    rest().await;
    let machine = api.get(&one).await.unwrap();
    assert_eq!(machine.annotation(UPDATE_INSTANCE), None, "it is done");
    assert_eq!(machine.phase(), MachinePhase::Running);
    let new = images(&world).into_iter().filter(|image| image == "fake-2.0").count();
    assert_eq!((ids(&world), new), (before, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_in_the_middle_of_updates_in_place_finishes_them() {
    let mut world = start().await;
    let mut wanted = pool("p", 3);
    wanted["spec"]["strategy"] = json!({ "type": "InPlaceUpdate" });
    world.apply::<MachinePool>(wanted).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    edit_class(&world, json!({ "image": "fake-2.0", "latency": { "update": "3s" } })).await;
    for step in 1..=6 {
        tokio::time::sleep(Duration::from_millis(1300 * step)).await;
        world.crash_core();
        if step % 2 == 0 {
            world.crash_driver();
            world.start_driver();
        }
        world.start_core().await;
    }
    until_runs(&world, 3).await;
    rest().await;
    assert_eq!((ids(&world), images(&world)), (before, vec!["fake-2.0".to_owned(); 3]));
    let all = Api::<Node>::all(world.client());
    let all = all.list(&ListParams::default()).await.unwrap().items;
    assert!(all.iter().all(|it| it.spec.as_ref().unwrap().unschedulable != Some(true)));
    assert!(machines(&world).await.iter().all(|it| it.annotation(UPDATE_BEGUN).is_none()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_replaces_every_instance_though_nothing_else_changed() {
    let world = start().await;
    world.apply::<MachinePool>(pool("p", 3)).await;
    until_runs(&world, 3).await;
    let before = ids(&world);
    let at = json!({ "annotations": { RESTARTED_AT: "2026-01-01T00:00:00Z" } });
    patch(&world, json!({ "spec": { "template": { "metadata": at } } })).await;
    Box::pin(within(&world, 3, 3, 4)).await;
    let after = ids(&world);
    assert!(after.len() == 3 && before.iter().all(|id| !after.contains(id)), "{after:?}");
    world.stop().await;
}
