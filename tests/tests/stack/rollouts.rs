//! MachineDeployments: rollouts, scaling and what happens in the middle of them. On a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition};
use kube::runtime::watcher;
use ostler_api::machine::{Machine, MachinePhase, MachineStep};
use ostler_api::machine_deployment::MachineDeploymentConditionType as Type;
use ostler_api::names::{annotation, label};
use ostler_api::{MachineClass, MachineDeployment, MachineSet};
use ostler_driver_fake::calls::Call;
use ostler_driver_fake::fault::Verb;
use ostler_driver_fake::spec::Resource;
use ostler_lifecycle::deployment::conditions::reason_of;
use ostler_tests::objects::{agents, at_step, class, in_phase, instances, nodes};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Long enough for anything that would still happen.
pub(crate) const QUIET: Duration = Duration::from_mins(15);

fn with_fleet() -> Setup {
    Setup::tuned(|options| options.settings.controllers = "*".parse().unwrap())
}

pub(crate) async fn world() -> World {
    let world = World::start_with(with_fleet()).await;
    let spec = json!({ "region": "local", "image": "fake-2.0", "latency": { "create": "5s" } });
    world.apply::<MachineClass>(class("next", &spec)).await;
    world
}

fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "d", "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": "d" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
            },
            "template": {
                "metadata": { "labels": { "name": "d" } },
                "spec": { "class": { "kind": "MachineClass", "name": "fake" } }
            }
        }
    })
}

fn api(world: &World) -> Api<MachineDeployment> {
    Api::default_namespaced(world.client())
}

async fn get(world: &World) -> MachineDeployment {
    api(world).get("d").await.unwrap()
}

async fn sets(world: &World) -> Vec<MachineSet> {
    let api = Api::<MachineSet>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

pub(crate) async fn machines(world: &World) -> Vec<Machine> {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

async fn names(world: &World) -> Vec<String> {
    machines(world).await.iter().map(|it| it.name().to_owned()).collect()
}

async fn edit(world: &World, patch: Value) {
    api(world).patch("d", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

pub(crate) async fn roll_to(world: &World, class: &str) {
    let class = json!({ "class": { "name": class } });
    edit(world, json!({ "spec": { "template": { "spec": class } } })).await;
}

async fn scale(world: &World, replicas: i32) {
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    api(world).patch_scale("d", &PatchParams::default(), &patch).await.unwrap();
}

async fn until(world: &World, what: &str, condition: impl Condition<MachineDeployment>) {
    let day = Duration::from_hours(24);
    let Ok(met) = timeout(day, await_condition(api(world), "d", condition)).await else {
        let sets = sets(world).await;
        let machines = machines(world).await;
        let phases: Vec<_> = machines.iter().map(|it| (it.name(), it.phase())).collect();
        panic!("d was never {what} within a day: {:#?} {sets:#?} {phases:#?}", get(world).await);
    };
    met.unwrap();
}

fn reason(deployment: &MachineDeployment) -> String {
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.clone());
    reason_of(&conditions.collect::<Vec<_>>(), &Type::Progressing).to_owned()
}

/// All machines are of the current template, and available, and no other one is left.
fn rolled_out(deployment: Option<&MachineDeployment>) -> bool {
    let Some(deployment) = deployment else { return false };
    let Some(status) = &deployment.status else { return false };
    let wanted = deployment.spec.replicas();
    status.observed_generation == deployment.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
        && reason(deployment) == "NewMachineSetAvailable"
}

fn says(wanted: &'static str) -> impl Fn(Option<&MachineDeployment>) -> bool {
    move |deployment| deployment.is_some_and(|it| reason(it) == wanted)
}

pub(crate) async fn until_rolled_out(world: &World) {
    until(world, "rolled out", rolled_out).await;
}

async fn running(world: &World, replicas: i32) {
    world.apply::<MachineDeployment>(deployment(replicas)).await;
    until_rolled_out(world).await;
}

fn is_available(machine: &Machine) -> bool {
    machine.phase() == MachinePhase::Running && !machine.is_deleting()
}

/// The fewest available machines and the most living ones, at any time from now on.
fn census(client: Client) -> JoinHandle<(usize, usize)> {
    let api = Api::<Machine>::default_namespaced(client);
    tokio::spawn(async move {
        let mut seen: BTreeMap<String, Machine> = BTreeMap::new();
        let (mut fewest, mut most) = (usize::MAX, 0);
        let mut events = watcher(api, watcher::Config::default()).boxed();
        let mut complete = false;
        while let Ok(Some(event)) = timeout(QUIET, events.next()).await {
            match event.unwrap() {
                watcher::Event::Apply(it) | watcher::Event::InitApply(it) => {
                    seen.insert(it.name().to_owned(), it);
                }
                watcher::Event::Delete(it) => drop(seen.remove(it.name())),
                watcher::Event::Init => {}
                watcher::Event::InitDone => complete = true,
            }
            if complete {
                fewest = fewest.min(seen.values().filter(|it| is_available(it)).count());
                most = most.max(seen.values().filter(|it| !it.is_deleting()).count());
            }
        }
        (fewest, most)
    })
}

#[tokio::test(start_paused = true)]
async fn a_deployment_comes_up_scales_and_rolls_without_losing_an_available_machine() {
    let world = world().await;
    running(&world, 3).await;
    assert_eq!((instances(&world), nodes(&world).await), (3, 3));
    let status = get(&world).await.status.unwrap();
    assert_eq!(status.conditions.len(), 2, "{:?}", status.conditions);
    scale(&world, 5).await;
    until_rolled_out(&world).await;
    scale(&world, 3).await;
    until_rolled_out(&world).await;
    let census = census(world.client());
    roll_to(&world, "next").await;
    until_rolled_out(&world).await;
    assert_eq!(census.await.unwrap(), (3, 4));
    let classes: Vec<_> = machines(&world).await.into_iter().map(|it| it.spec.class.name).collect();
    assert_eq!(classes, ["next"; 3]);
    assert_eq!(instances(&world), 3);
    api(&world).delete("d", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", |it: Option<&MachineDeployment>| it.is_none()).await;
    assert_eq!((instances(&world), sets(&world).await.len()), (0, 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_in_the_middle_of_a_rollout_ends_as_both_want_it_816() {
    let world = world().await;
    running(&world, 4).await;
    for (class, replicas) in [("next", 6), ("fake", 2), ("next", 3)] {
        roll_to(&world, class).await;
        let begun = |it: Option<&MachineDeployment>| {
            let status = it.and_then(|it| it.status.as_ref());
            status.is_some_and(|it| it.updated_replicas > 0 && it.updated_replicas < it.replicas)
        };
        until(&world, "rolling", begun).await;
        scale(&world, replicas).await;
        until_rolled_out(&world).await;
        let machines = machines(&world).await;
        assert_eq!(machines.len(), usize::try_from(replicas).unwrap());
        assert!(machines.iter().all(|it| it.spec.class.name == class));
    }
    world.stop().await;
}

/// Pauses a deployment of three and the one class, scales it and wants the other class: that comes after the pause.
async fn scales_while_paused(world: &World, [paused, resumed]: [Value; 2], [is, next]: [&str; 2]) {
    edit(world, paused).await;
    until(world, "paused", says("DeploymentPaused")).await;
    roll_to(world, next).await;
    for replicas in [4, 3] {
        scale(world, replicas).await;
        let scaled = move |it: Option<&MachineDeployment>| {
            it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.available_replicas == replicas)
        };
        until(world, "scaled", scaled).await;
    }
    sleep(QUIET).await;
    assert!(machines(world).await.iter().all(|it| it.spec.class.name == is));
    edit(world, resumed).await;
    until_rolled_out(world).await;
    assert!(machines(world).await.iter().all(|it| it.spec.class.name == next));
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_scales_and_goes_on_when_it_is_resumed() {
    let world = world().await;
    running(&world, 3).await;
    let paused = |paused: bool| json!({ "spec": { "paused": paused } });
    scales_while_paused(&world, [paused(true), paused(false)], ["fake", "next"]).await;
    let annotated = |value: Value| json!({ "metadata": { "annotations": { annotation::CLUSTER_API_PAUSED: value } } });
    let by_annotation = [annotated(json!("")), annotated(Value::Null)];
    scales_while_paused(&world, by_annotation, ["next", "fake"]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_brings_the_machines_of_the_revision_before() {
    let world = world().await;
    running(&world, 2).await;
    roll_to(&world, "next").await;
    until_rolled_out(&world).await;
    edit(&world, json!({ "spec": { "rollbackTo": { "revision": 0 } } })).await;
    let back = |it: Option<&MachineDeployment>| {
        rolled_out(it) && it.is_some_and(|it| it.spec.template.spec.class.name == "fake")
    };
    until(&world, "rolled back", back).await;
    let deployment = get(&world).await;
    assert_eq!(deployment.spec.rollback_to, None);
    assert_eq!(deployment.annotation(annotation::REVISION), Some("3"));
    assert_eq!(sets(&world).await.len(), 2, "the set of the first revision is used again");
    let nodes = Api::<Node>::all(world.client()).list(&ListParams::default()).await.unwrap().items;
    for node in nodes {
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let ours = taints.iter().any(|taint| taint.key == annotation::PREFER_NO_SCHEDULE);
        assert!(!ours, "{taints:?}");
        let annotations = node.metadata.annotations.unwrap_or_default();
        assert!(!annotations.contains_key(annotation::SCALE_DOWN_DISABLED), "{annotations:?}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn recreate_lets_the_old_machines_go_first() {
    let world = world().await;
    let mut recreate = deployment(2);
    recreate["spec"]["strategy"] = json!({ "type": "Recreate" });
    world.apply::<MachineDeployment>(recreate).await;
    until_rolled_out(&world).await;
    let census = census(world.client());
    roll_to(&world, "next").await;
    until_rolled_out(&world).await;
    assert_eq!(census.await.unwrap(), (0, 2));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_stands_still_says_so_after_its_deadline_and_goes_on_when_it_can() {
    let world = world().await;
    let mut impatient = deployment(2);
    impatient["spec"]["progressDeadlineSeconds"] = json!(600);
    world.apply::<MachineDeployment>(impatient).await;
    until_rolled_out(&world).await;
    let faults = json!([{ "operation": "CreateMachine", "error": "ResourceExhausted" }]);
    let spec = json!({ "region": "local", "image": "fake-1.0", "faults": faults });
    world.apply::<MachineClass>(class("short", &spec)).await;
    roll_to(&world, "short").await;
    until(&world, "late", says("ProgressDeadlineExceeded")).await;
    let available = machines(&world).await.into_iter().filter(is_available).count();
    assert_eq!(available, 2, "no machine was lost for it");
    edit(&world, json!({ "spec": { "rollbackTo": { "revision": 1 } } })).await;
    until_rolled_out(&world).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cores_that_are_replaced_and_crash_in_the_middle_of_a_rollout_lose_nothing() {
    let mut world = world().await;
    running(&world, 4).await;
    let census = census(world.client());
    roll_to(&world, "next").await;
    for round in 0..6_u64 {
        sleep(Duration::from_millis(2_700 + 130 * round)).await;
        if round % 2 == 0 {
            world.stop_core().await;
        } else {
            world.crash_core();
        }
        world.start_core().await;
    }
    until_rolled_out(&world).await;
    let (fewest, most) = census.await.unwrap();
    assert!(fewest >= 4 && most <= 5, "{fewest} available, {most} machines");
    assert_eq!((instances(&world), machines(&world).await.len()), (4, 4));
    world.stop().await;
}

/// As the autoscaler writes it: one PUT of the whole object.
async fn choose(world: &World, victims: &[String], replicas: i32) {
    let mut deployment = get(world).await;
    let now = format!("{:.0}", world.now());
    let list: Vec<_> = victims.iter().map(|name| format!("{name}~{now}")).collect();
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::TRIGGER_DELETION.to_owned(), list.join(","));
    annotations.insert(annotation::REPLICAS_CHANGED_BY_SCALER.to_owned(), now);
    deployment.spec.replicas = Some(replicas);
    api(world).replace("d", &PostParams::default(), &deployment).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn exactly_the_machines_go_that_the_autoscaler_chose_965_1087() {
    let world = world().await;
    running(&world, 4).await;
    let all = names(&world).await;
    let victims = [all[1].clone(), all[2].clone()];
    choose(&world, &victims, 2).await;
    until_rolled_out(&world).await;
    assert_eq!(names(&world).await, [all[0].clone(), all[3].clone()]);
    // The mark first, the replicas later.
    let victim = all[3].clone();
    let late = format!("{victim}~{:.0}", world.now() + jiff::SignedDuration::from_hours(1));
    edit(&world, json!({ "metadata": { "annotations": { annotation::TRIGGER_DELETION: late } } }))
        .await;
    sleep(QUIET).await;
    assert_eq!(names(&world).await.len(), 2, "it waits for the replicas");
    choose(&world, &[victim], 1).await;
    until_rolled_out(&world).await;
    assert_eq!(names(&world).await, [all[0].clone()]);
    assert_eq!(get(&world).await.annotation(annotation::TRIGGER_DELETION), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_chosen_machine_of_an_old_set_goes_in_the_middle_of_a_rollout_1078() {
    let world = world().await;
    running(&world, 4).await;
    roll_to(&world, "next").await;
    let begun = |it: Option<&MachineDeployment>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.updated_replicas == 1)
    };
    until(&world, "rolling", begun).await;
    edit(&world, json!({ "spec": { "paused": true } })).await;
    sleep(QUIET).await;
    let old = |it: &&Machine| it.spec.class.name == "fake" && is_available(it);
    let all = machines(&world).await;
    let victim = all.iter().rev().find(old).unwrap().name().to_owned();
    choose(&world, std::slice::from_ref(&victim), 3).await;
    let api = Api::<Machine>::default_namespaced(world.client());
    let gone = |it: Option<&Machine>| it.is_none();
    let waited = timeout(Duration::from_hours(1), await_condition(api, &victim, gone)).await;
    waited.unwrap().unwrap();
    sleep(QUIET).await;
    let left = names(&world).await;
    let lost: Vec<_> =
        all.iter().map(Machine::name).filter(|it| !left.contains(&(*it).into())).collect();
    assert_eq!(lost, [victim.as_str()], "no other machine went");
    edit(&world, json!({ "spec": { "paused": false } })).await;
    until_rolled_out(&world).await;
    world.stop().await;
}

pub(crate) fn in_place(replicas: i32, unavailable: i32) -> Value {
    let mut in_place = deployment(replicas);
    in_place["spec"]["strategy"] = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "maxSurge": 0, "maxUnavailable": unavailable, "orchestrationType": "Auto"
    }});
    in_place
}

#[tokio::test(start_paused = true)]
async fn an_update_in_place_keeps_every_machine_and_its_instance() {
    let world = world().await;
    world.apply::<MachineDeployment>(in_place(3, 1)).await;
    until_rolled_out(&world).await;
    let before = names(&world).await;
    let agents = tokio::spawn(agents(world.client()));
    roll_to(&world, "next").await;
    until_rolled_out(&world).await;
    agents.abort();
    assert_eq!(names(&world).await, before);
    assert_eq!(instances(&world), 3);
    for machine in machines(&world).await {
        assert_eq!(machine.spec.class.name, "next");
        // It goes when the new set counts the machine, which may be seen first.
        let api = Api::<Machine>::default_namespaced(world.client());
        let finished =
            |it: Option<&Machine>| it.is_some_and(|it| it.label(label::UPDATE_RESULT).is_none());
        let waited = await_condition(api, machine.name(), finished);
        timeout(QUIET, waited).await.unwrap().unwrap();
    }
    world.stop().await;
}

/// Hot, in place, hot again: what the driver works on ends before the Node is drained, and what has not begun waits until
/// the Node is updated.
#[tokio::test(start_paused = true)]
async fn a_hot_update_ends_before_its_node_is_updated_and_that_of_the_new_class_follows() {
    let world = world().await;
    let tagged = |tag: &str| json!({ "region": "local", "image": "fake-1.0", "tags": { "vm": { "k": tag } }, "latency": { "update": "60s" } });
    for (name, tag) in [("old", "1"), ("renamed", "3")] {
        world.apply::<MachineClass>(class(name, &tagged(tag))).await;
    }
    let mut both = in_place(2, 2);
    both["spec"]["template"]["spec"]["class"]["name"] = json!("old");
    world.apply::<MachineDeployment>(both).await;
    until_rolled_out(&world).await;
    let before = tags(&world);
    let edit = Patch::Merge(json!({ "providerSpec": tagged("2") }));
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    classes.patch("old", &PatchParams::default(), &edit).await.unwrap();
    // One machine at a time has the slot.
    let hot = loop {
        let all = machines(&world).await;
        let busy = all.iter().find(|it| at_step(MachineStep::UpdateInstance)(Some(it)));
        match busy {
            Some(busy) => break busy.name().to_owned(),
            None => sleep(Duration::from_millis(100)).await,
        }
    };
    let waits = names(&world).await.into_iter().find(|it| *it != hot).unwrap();
    roll_to(&world, "renamed").await;
    world.until(&waits, "updated in place", in_phase(MachinePhase::InPlaceUpdating)).await;
    let busy = Api::<Node>::all(world.client()).get(&hot).await.unwrap();
    assert_eq!(busy.spec.unwrap().unschedulable, None, "its driver works on it");
    world.until(&hot, "updated in place", in_phase(MachinePhase::InPlaceUpdating)).await;
    let of = |name: &str| tags(&world).into_iter().find(|it| it.0 == name).unwrap().2;
    assert_eq!((of(&hot), of(&waits)), ("2".to_owned(), "1".to_owned()));
    let agents = tokio::spawn(agents(world.client()));
    until_rolled_out(&world).await;
    agents.abort();
    sleep(QUIET).await;
    let expected: Vec<_> =
        before.into_iter().map(|(name, id, _)| (name, id, "3".to_owned())).collect();
    assert_eq!(tags(&world), expected, "the same instances");
    let calls = world.calls().into_iter().filter(|it| it.operation == Verb::UpdateMachine);
    let (of_hot, of_other): (Vec<_>, Vec<_>) = calls.partition(|it| it.name == hot);
    let classes = |calls: Vec<Call>| calls.into_iter().map(|it| it.class).collect::<Vec<_>>();
    assert_eq!(classes(of_hot), ["old", "renamed"]);
    assert_eq!(classes(of_other).last().unwrap(), "renamed");
    world.stop().await;
}

/// Name, provider id and tag of each instance.
pub(crate) fn tags(world: &World) -> Vec<(String, String, String)> {
    let all = world.cloud().instances().unwrap().into_iter().map(|one| {
        let tag = one.tags(Resource::Vm).tags.get("k").cloned().unwrap_or_default();
        (one.identity.machine_name.clone(), one.provider_id.clone(), tag)
    });
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

/// Upstream's integration specs 4 to 6, 8 and 9; 7, the freeze, has tests of its own.
#[tokio::test(start_paused = true)]
async fn what_upstreams_integration_tests_expect_of_a_deployment() {
    let world = world().await;
    let mut spec = deployment(0);
    spec["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 2, "maxUnavailable": 1 });
    spec["spec"]["minReadySeconds"] = json!(500);
    world.apply::<MachineDeployment>(spec).await;
    until_rolled_out(&world).await;
    assert_eq!(sets(&world).await.len(), 1, "a set although there are no replicas");
    for replicas in [1, 6, 2] {
        scale(&world, replicas).await;
        until_rolled_out(&world).await;
        let count = usize::try_from(replicas).unwrap();
        assert_eq!(nodes(&world).await, count);
    }
    // Six machines of two are far too many: that freezes the set for one period.
    until(&world, "goes on", |it: Option<&MachineDeployment>| {
        let status = it.and_then(|it| it.status.as_ref());
        status.is_some_and(|it| it.conditions.iter().all(|it| it.type_.to_string() != "Frozen"))
    })
    .await;
    let status = get(&world).await.status.unwrap();
    let shown = |it: &ostler_api::machine_deployment::MachineDeploymentCondition| {
        (it.type_.to_string(), it.status.clone(), it.reason.clone().unwrap())
    };
    let expected = [
        ("Available", "True", "MinimumReplicasAvailable"),
        ("Progressing", "True", "NewMachineSetAvailable"),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(status.conditions.iter().map(shown).collect::<Vec<_>>(), expected);
    for set in sets(&world).await {
        assert_eq!(set.metadata.owner_references.unwrap()[0].name, "d");
    }
    edit(&world, json!({ "spec": { "replicas": 4, "template": { "spec": { "class": { "name": "next" } } } } }))
        .await;
    until_rolled_out(&world).await;
    let status = get(&world).await.status.unwrap();
    assert_eq!((status.updated_replicas, status.available_replicas), (4, 4));
    assert_eq!(nodes(&world).await, 4);
    let events = Api::<Event>::default_namespaced(world.client());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    assert!(events.iter().any(|it| it.reason.as_deref() == Some("ScalingMachineSet")));
    api(&world).delete("d", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", |it: Option<&MachineDeployment>| it.is_none()).await;
    assert_eq!((nodes(&world).await, instances(&world)), (0, 0));
    world.stop().await;
}

/// The name was tried again ten minutes later: no event tells a deployment of its own status.
#[tokio::test(start_paused = true)]
async fn a_set_whose_name_another_has_gets_another_one_at_once() {
    let world = world().await;
    running(&world, 0).await;
    let name = sets(&world).await.remove(0).name().to_owned();
    api(&world).delete("d", &DeleteParams::default()).await.unwrap();
    until(&world, "gone", |it: Option<&MachineDeployment>| it.is_none()).await;
    world
        .apply::<MachineSet>(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "replicas": 0, "selector": { "matchLabels": { "name": "other" } },
                "template": {
                    "metadata": { "labels": { "name": "other" } },
                    "spec": { "class": { "kind": "MachineClass", "name": "fake" } }
                }
            }
        }))
        .await;
    let began = tokio::time::Instant::now();
    running(&world, 1).await;
    assert!(began.elapsed() < Duration::from_mins(5), "{:?}", began.elapsed());
    let status = get(&world).await.status.unwrap();
    assert_eq!((status.collision_count, sets(&world).await.len()), (Some(1), 2));
    world.stop().await;
}

/// As after a change of leader: the core before it has scaled the set already.
#[tokio::test(start_paused = true)]
async fn a_core_that_sees_the_scaled_set_before_the_deployment_takes_nothing_back() {
    let late = Setup { watches_lag: Duration::from_secs(5), ..with_fleet() };
    let world = World::start_with(late).await;
    running(&world, 3).await;
    sleep(QUIET).await;
    let scaled = Patch::Merge(json!({
        "metadata": { "annotations": {
            annotation::DESIRED_REPLICAS: "10", annotation::MAX_REPLICAS: "11"
        } },
        "spec": { "replicas": 10 },
    }));
    let name = sets(&world).await.remove(0).name().to_owned();
    let of_sets = Api::<MachineSet>::default_namespaced(world.client());
    of_sets.patch(&name, &PatchParams::default(), &scaled).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    scale(&world, 10).await;
    for _ in 0..120 {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(sets(&world).await.remove(0).spec.replicas, Some(10));
    }
    until_rolled_out(&world).await;
    assert_eq!(instances(&world), 10);
    world.stop().await;
}
