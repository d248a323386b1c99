//! Whose machines are: what other controllers, users and webhooks do to the machines of a set. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use ostler_api::machine::Machine;
use ostler_api::machine_set::MachineSetConditionType;
use ostler_api::{MachineClass, MachineDeployment, MachineSet};
use ostler_tests::objects::{self, class, instances, machine};
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

use crate::sets::{
    machines, patch, rest, runs, scale, set, sets, told, until, until_runs, with_sets,
};

/// Creates a machine as another controller of this set would.
async fn create_for(world: &World, set: &str, name: &str) {
    let owner = sets(world).get(set).await.unwrap();
    let owner = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": set,
        "uid": owner.metadata.uid.unwrap(), "controller": true, "blockOwnerDeletion": true
    });
    let foreign = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "default", "labels": { "app": set }, "ownerReferences": [owner]
        },
        "spec": { "class": { "kind": "MachineClass", "name": "fake" } }
    });
    world.apply::<Machine>(foreign).await;
}

/// The failure of the set.
fn failure(set: &MachineSet) -> Option<(&str, &str)> {
    let all = &set.status.as_ref()?.conditions;
    let found = all.iter().find(|it| it.type_ == MachineSetConditionType::ReplicaFailure)?;
    Some((found.reason.as_deref()?, found.message.as_deref()?))
}

fn fails(reason: &'static str) -> impl Fn(Option<&MachineSet>) -> bool {
    move |set| set.and_then(failure).is_some_and(|(found, _)| found == reason)
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_another_controller_stops_the_set_until_somebody_says_who_runs_it() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 3)).await;
    until_runs(&world, "s", 3).await;
    create_for(&world, "s", "foreign").await;
    until(&world, "s", "in doubt", fails("ForeignController")).await;
    scale(&world, "s", 6).await;
    rest().await;
    let there = machines(&world).await.len();
    assert!(there <= 4, "none was created: {there}");
    let doubtful = sets(&world).get("s").await.unwrap();
    let (_, message) = failure(&doubtful).unwrap();
    for part in ["machine foreign was made", "ostler.dev/run-by", "10 minutes"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(told(&world, "ForeignController").await, [message]);
    let who = |who: &str| json!({ "metadata": { "annotations": { "ostler.dev/run-by": who } } });
    patch(&world, "s", who("machine-controller-manager")).await;
    rest().await;
    assert_eq!(machines(&world).await.len(), there);
    patch(&world, "s", who("ostler")).await;
    until_runs(&world, "s", 6).await;
    assert_eq!(failure(&sets(&world).get("s").await.unwrap()), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_controller_that_makes_no_more_machines_counts_as_gone() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 2)).await;
    until_runs(&world, "s", 2).await;
    create_for(&world, "s", "foreign").await;
    until(&world, "s", "in doubt", fails("ForeignController")).await;
    scale(&world, "s", 5).await;
    rest().await;
    assert!(machines(&world).await.len() <= 3);
    tokio::time::sleep(Duration::from_mins(10)).await;
    until_runs(&world, "s", 5).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_were_made_before_a_core_leads_are_not_foreign() {
    let mut world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 2)).await;
    until_runs(&world, "s", 2).await;
    for crash in [true, false] {
        if crash {
            world.crash_core();
        } else {
            world.stop_core().await;
        }
        create_for(&world, "s", if crash { "one" } else { "other" }).await;
        world.start_core().await;
        rest().await;
        until_runs(&world, "s", 2).await;
    }
    scale(&world, "s", 4).await;
    until_runs(&world, "s", 4).await;
    assert_eq!(told(&world, "ForeignController").await, [""; 0]);
    world.stop().await;
}

async fn label(world: &World, machine: &str, app: Value) {
    let patch = json!({ "metadata": { "labels": { "app": app } } });
    world.patch_machine(machine, patch).await;
}

/// UID of the set that controls a machine.
fn owner(machine: &Machine) -> Option<String> {
    let owners = machine.metadata.owner_references.as_ref()?;
    owners.iter().find(|it| it.controller == Some(true)).map(|it| it.uid.clone())
}

fn free(machine: Option<&Machine>) -> bool {
    machine.is_some_and(|machine| owner(machine).is_none())
}

fn owned(machine: Option<&Machine>) -> bool {
    machine.is_some_and(|machine| owner(machine).is_some())
}

/// Upstream sends a patch that releases nothing.
#[tokio::test(start_paused = true)]
async fn a_machine_without_its_label_is_let_go_and_replaced_and_comes_back_with_it() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 2)).await;
    until_runs(&world, "s", 2).await;
    let name = machines(&world).await[0].name().to_owned();
    label(&world, &name, Value::Null).await;
    world.until(&name, "released", free).await;
    until_runs(&world, "s", 2).await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (3, 3), "it lives on");
    assert_eq!(told(&world, "ReleasedMachine").await.len(), 1);
    let lone = objects::get(&world, &name).await;
    let references = lone.metadata.owner_references.as_deref().unwrap_or_default();
    assert!(references.is_empty(), "{references:?}");

    // Then there is one machine too many, and the set keeps its number.
    label(&world, &name, json!("s")).await;
    world
        .until(&name, "adopted, or gone at once", |it: Option<&Machine>| it.is_none() || owned(it))
        .await;
    until_runs(&world, "s", 2).await;
    rest().await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (2, 2));
    assert_eq!(told(&world, "AdoptedMachine").await.len(), 1);
    assert_eq!(told(&world, "ForeignController").await, [""; 0]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_nobody_controls_is_adopted_and_its_other_owners_stay() {
    let world = World::start_with(with_sets()).await;
    let other = json!({ "metadata": { "name": "other", "namespace": "default" } });
    let other = world.apply::<ConfigMap>(other).await.metadata.uid;
    let mut lone = machine("lone", "fake");
    lone["metadata"]["labels"] = json!({ "app": "s" });
    lone["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other
    }]);
    world.apply::<Machine>(lone).await;
    world.apply::<MachineSet>(set("s", 2)).await;
    until_runs(&world, "s", 2).await;
    assert_eq!((machines(&world).await.len(), instances(&world)), (2, 2));
    let adopted = objects::get(&world, "lone").await;
    let owners = adopted.metadata.owner_references.as_ref().unwrap();
    let kinds: Vec<_> = owners.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["MachineSet", "ConfigMap"], "the controller comes first");
    assert_eq!(told(&world, "ForeignController").await, [""; 0]);
    world.stop().await;
}

/// CAPI #14216: a webhook takes the labels from each machine that is created.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_strips_labels_makes_no_machines_without_end() {
    let strip = |machine: &mut Value| machine["metadata"]["labels"] = json!({});
    let world = World::start_with(Setup { webhook: Some(strip), ..with_sets() }).await;
    world.apply::<MachineSet>(set("s", 3)).await;
    until(&world, "s", "held", fails("FailedCreate")).await;
    let most = 2 * 3 + 2;
    let there = machines(&world).await.len();
    assert!(there <= most, "{there}");
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(machines(&world).await.len(), there, "and no more");
    let held = sets(&world).get("s").await.unwrap();
    let (_, message) = failure(&held).unwrap();
    assert!(message.contains("no longer match spec.selector"), "{message}");
    for machine in machines(&world).await.iter().take(3) {
        label(&world, machine.name(), json!("s")).await;
    }
    until(&world, "s", "with its machines", |set: Option<&MachineSet>| {
        set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.ready_replicas == 3)
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gives_a_set_that_it_adopts_a_hash_of_its_own_and_rolls_it() {
    let world = World::start_with(with_sets()).await;
    let spec = json!({ "region": "local", "image": "fake-2.0" });
    world.apply::<MachineClass>(class("next", &spec)).await;
    let mut adopted = set("s", 2);
    adopted["metadata"]["labels"] = json!({ "app": "s" });
    world.apply::<MachineSet>(adopted.clone()).await;
    until_runs(&world, "s", 2).await;
    let before = machines(&world).await;
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "d", "namespace": "default" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": "s" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 }
            },
            "template": adopted["spec"]["template"]
        }
    });
    world.apply::<MachineDeployment>(deployment).await;
    let hash = "machine-template-hash";
    let relabelled = move |set: Option<&MachineSet>| {
        let selector = set.and_then(|set| set.spec.selector.as_ref());
        let labels = selector.and_then(|selector| selector.match_labels.as_ref());
        labels.is_some_and(|labels| labels.contains_key(hash))
            && runs(2)(set)
            && set
                .and_then(|it| it.status.as_ref())
                .is_some_and(|it| it.fully_labeled_replicas == 2)
    };
    until(&world, "s", "relabelled", relabelled).await;
    rest().await;
    let after = machines(&world).await;
    let uids = |all: &[Machine]| all.iter().map(|it| it.uid().to_owned()).collect::<Vec<_>>();
    assert_eq!(uids(&after), uids(&before), "none is released, and none is new");
    assert!(after.iter().all(|machine| machine.label(hash).is_some()));
    assert_eq!(told(&world, "ReleasedMachine").await, [""; 0]);

    let next = json!({ "spec": { "template": { "spec": { "class": { "name": "next" } } } } });
    let deployments = Api::<MachineDeployment>::default_namespaced(world.client());
    deployments.patch("d", &PatchParams::default(), &Patch::Merge(next)).await.unwrap();
    until(&world, "s", "rolled", runs(0)).await;
    rest().await;
    let classes = machines(&world).await.into_iter().map(|it| it.spec.class.name);
    assert_eq!(classes.collect::<Vec<_>>(), ["next", "next"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn selectors_that_overlap_are_told_once() {
    let world = World::start_with(with_sets()).await;
    world.apply::<MachineSet>(set("s", 0)).await;
    until_runs(&world, "s", 0).await;
    let mut rival = set("t", 0);
    rival["spec"]["selector"] = json!({ "matchLabels": { "app": "s" } });
    rival["spec"]["template"]["metadata"]["labels"] = json!({ "app": "s" });
    world.apply::<MachineSet>(rival).await;
    until_runs(&world, "t", 0).await;
    rest().await;
    let notes = told(&world, "SelectorOverlap").await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("machine set s:"), "{notes:?}");
    world.stop().await;
}
