//! Updates in place, the whole stack in one process on a paused clock. The agent on the Node is the test.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use ostler_api::machine::{Machine, MachinePhase, MachineStep, WaitReason};
use ostler_api::names::{annotation, label};
use ostler_api::{MachineClass, MachineDeployment};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{agents, at_step, class, get, in_phase, instances, machine, waits_for};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::rollouts;

async fn running(world: &World, name: &str) {
    world.apply::<Machine>(machine(name, "fake")).await;
    world.until(name, "Running", in_phase(MachinePhase::Running)).await;
}

async fn edit_node(world: &World, name: &str, metadata: Value) {
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    Api::<Node>::all(world.client()).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn select(world: &World, name: &str) {
    let labels = json!({ label::CANDIDATE_FOR_UPDATE: "true", label::SELECTED_FOR_UPDATE: "true" });
    edit_node(world, name, json!({ "labels": labels })).await;
}

async fn node(world: &World, name: &str) -> Node {
    Api::<Node>::all(world.client()).get(name).await.unwrap()
}

fn stage(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == "InPlaceUpdate")?.reason.clone()
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

async fn events_of(world: &World, name: &str) -> Vec<String> {
    let api = Api::<k8s_openapi::api::events::v1::Event>::default_namespaced(world.client());
    let events = api.list(&ListParams::default()).await.unwrap().items;
    let about = |event: &k8s_openapi::api::events::v1::Event| {
        event.regarding.as_ref().and_then(|it| it.name.clone()).as_deref() == Some(name)
    };
    events.into_iter().filter(about).filter_map(|event| event.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_selected_node_is_emptied_updated_by_its_agent_and_takes_pods_again() {
    let world = World::start().await;
    running(&world, "m").await;
    world
        .apply::<Pod>(json!({
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "nodeName": "m", "containers": [{ "name": "app", "image": "pause" }] },
        }))
        .await;
    select(&world, "m").await;
    world.until("m", "updating", in_phase(MachinePhase::InPlaceUpdating)).await;
    world.until("m", "at UpdateNode", at_step(MachineStep::UpdateNode)).await;
    sleep(Duration::from_secs(5)).await;
    let pods = Api::<Pod>::default_namespaced(world.client());
    assert!(pods.get_opt("web").await.unwrap().is_none(), "it runs elsewhere");
    let ready = node(&world, "m").await;
    assert_eq!(stage(&ready).as_deref(), Some("ReadyForUpdate"));
    assert!(is_cordoned(&ready));
    assert!(waits_for(WaitReason::NodeUpdating)(Some(&get(&world, "m").await)));
    edit_node(&world, "m", json!({ "labels": { label::UPDATE_RESULT: "successful" } })).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    sleep(Duration::from_secs(5)).await;
    let updated = node(&world, "m").await;
    assert_eq!(stage(&updated).as_deref(), Some("UpdateSuccessful"));
    assert!(!is_cordoned(&updated));
    let labels = updated.metadata.labels.clone().unwrap();
    assert!(!labels.contains_key(label::SELECTED_FOR_UPDATE), "{labels:?}");
    assert_eq!(instances(&world), 1, "the instance is the same");
    let events = events_of(&world, "m").await;
    for reason in ["DrainStarted", "Drained", "InPlaceUpdateReady", "InPlaceUpdated"] {
        assert!(events.iter().any(|one| one == reason), "{reason} is not in {events:?}");
    }
    let version = updated.metadata.resource_version;
    sleep(Duration::from_mins(20)).await;
    let later = node(&world, "m").await.metadata.resource_version;
    assert_eq!(later, version, "nothing more is written to it");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_that_takes_too_long_or_fails_is_said_and_left_to_people() {
    let world = World::start_with(Setup::tuned(|options| {
        options.settings.lifecycle.in_place_timeout = Duration::from_mins(7);
    }))
    .await;
    for name in ["slow", "own"] {
        running(&world, name).await;
    }
    world.patch_machine("own", json!({ "spec": { "inPlaceUpdateTimeout": "3m" } })).await;
    let selected = world.now();
    for name in ["slow", "own"] {
        select(&world, name).await;
    }
    for (name, minutes) in [("own", 3), ("slow", 7)] {
        world.until(name, "failed", in_phase(MachinePhase::InPlaceUpdateFailed)).await;
        let took = world.now().duration_since(selected).as_secs();
        assert!((minutes * 60..minutes * 60 + 30).contains(&took), "{name}: {took}");
    }
    // The agent of `slow` reports after all, the agent of `own` gives the cause of its failure.
    edit_node(&world, "slow", json!({ "labels": { label::UPDATE_RESULT: "successful" } })).await;
    world.until("slow", "Running", in_phase(MachinePhase::Running)).await;
    let why = json!({
        "labels": { label::UPDATE_RESULT: "failed" },
        "annotations": { annotation::UPDATE_FAILED_REASON: "no space left" },
    });
    edit_node(&world, "own", why).await;
    sleep(Duration::from_hours(1)).await;
    let failed = get(&world, "own").await;
    assert_eq!(failed.phase(), MachinePhase::InPlaceUpdateFailed);
    let waiting = failed.status.unwrap().waiting_for.unwrap();
    assert_eq!(waiting.reason, WaitReason::InPlaceUpdateFailed);
    assert!(waiting.message.unwrap().contains("no space left"));
    assert_eq!(stage(&node(&world, "own").await).as_deref(), Some("UpdateFailed"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_goes_on_in_the_core_that_leads_next() {
    let mut world = World::start().await;
    running(&world, "m").await;
    select(&world, "m").await;
    world.until("m", "updating", in_phase(MachinePhase::InPlaceUpdating)).await;
    world.crash_core();
    edit_node(&world, "m", json!({ "labels": { label::UPDATE_RESULT: "successful" } })).await;
    world.start_core().await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    sleep(Duration::from_secs(5)).await;
    assert!(!is_cordoned(&node(&world, "m").await));
    world.stop().await;
}

/// The image is what only an update in place can bring to an instance, and the tags what only the driver can.
#[tokio::test(start_paused = true)]
async fn after_an_update_in_place_nothing_is_refused_and_edits_of_tags_go_on_to_arrive() {
    let world = rollouts::world().await;
    let linux = |version: &str, tag: &str| json!({ "region": "local", "image": format!("linux-{version}"), "tags": { "vm": { "k": tag } } });
    for (name, spec) in [("c2", linux("2", "1")), ("c1", linux("1", "2"))] {
        world.apply::<MachineClass>(class(name, &spec)).await;
    }
    let mut two = rollouts::in_place(2, 1);
    two["spec"]["template"]["spec"]["class"]["name"] = json!("c2");
    world.apply::<MachineDeployment>(two).await;
    rollouts::until_rolled_out(&world).await;
    let updating = tokio::spawn(agents(world.client()));
    rollouts::roll_to(&world, "c1").await;
    rollouts::until_rolled_out(&world).await;
    updating.abort();
    sleep(rollouts::QUIET).await;
    let all_tags =
        |world: &World| rollouts::tags(world).into_iter().map(|it| it.2).collect::<Vec<_>>();
    assert_eq!(all_tags(&world), ["2", "2"], "the hand-over brings the tags of the new class");
    let edit = Patch::Merge(json!({ "providerSpec": linux("1", "3") }));
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    classes.patch("c1", &PatchParams::default(), &edit).await.unwrap();
    sleep(rollouts::QUIET).await;
    assert_eq!(all_tags(&world), ["3", "3"], "and an edit of tags arrives");
    for machine in rollouts::machines(&world).await {
        let applied = machine.annotation(annotation::LAST_APPLIED_PROVIDER_SPEC).unwrap();
        assert_eq!(serde_json::from_str::<Value>(applied).unwrap(), linux("1", "3"));
        assert_eq!(machine.annotation(annotation::IN_PLACE_PROVIDER_SPEC), None);
        assert_eq!(machine.annotation(annotation::SETTLED_PROVIDER_SPEC), None);
    }
    // Only the image differs: the driver is left alone.
    let linux_4 = json!({ "region": "local", "image": "linux-4", "tags": { "vm": { "k": "3" } } });
    world.apply::<MachineClass>(class("c4", &linux_4)).await;
    let updating = tokio::spawn(agents(world.client()));
    rollouts::roll_to(&world, "c4").await;
    rollouts::until_rolled_out(&world).await;
    updating.abort();
    sleep(rollouts::QUIET).await;
    for machine in rollouts::machines(&world).await {
        let status = machine.status.clone().unwrap();
        let condition = |kind: &str| status.conditions.iter().find(|it| it.type_ == kind);
        let updated = condition("HotUpdated").unwrap();
        assert_eq!(
            (updated.status.as_str(), updated.reason.as_deref()),
            ("True", Some("UpdatedInPlace"))
        );
        assert!(condition("HotUpdateRefused").is_none() && status.waiting_for.is_none());
        assert!(
            machine.annotation(annotation::LAST_APPLIED_PROVIDER_SPEC).unwrap().contains("linux-1")
        );
    }
    let calls = world.calls().into_iter().filter(|it| it.operation == Verb::UpdateMachine);
    assert_eq!(calls.count(), 4, "two for the first hand-over, two for the edit");
    world.stop().await;
}
