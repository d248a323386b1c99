//! The overshoot freeze in the whole stack: far too many machines, from any client. On a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::timeout;

use crate::sets::{until_runs, with_sets};

/// Only the freeze: the machines of the set are made by the test.
async fn world() -> World {
    World::start_with(Setup::tuned(|options| {
        options.settings.controllers = "machine,machineset".parse().unwrap();
    }))
    .await
}

fn sets(world: &World) -> Api<MachineSet> {
    Api::namespaced(world.client(), "default")
}

/// Ten Machines more than the set `s` made, with its label. They do not go.
pub(crate) async fn overshoot(world: &World, set: &MachineSet, label: &str) {
    for number in 0..10 {
        let name = format!("m-{number}");
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "spec": { "class": { "kind": "MachineClass", "name": "fake" } },
            "metadata": {
                "name": name, "namespace": "default", "labels": { label: "s" }, "finalizers": ["example.com/held"],
                "ownerReferences": [{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
                    "uid": set.uid(), "controller": true
                }]
            }
        });
        world.apply::<Machine>(machine).await;
    }
}

pub(crate) async fn until_frozen(world: &World, frozen: bool) {
    let shows = move |set: Option<&MachineSet>| {
        set.is_some_and(|set| {
            let status = set.status.as_ref();
            let shown = status.is_some_and(|status| {
                status.conditions.iter().any(|condition| condition.type_.as_str() == "Frozen")
            });
            (set.label("freeze") == Some("True"), shown) == (frozen, frozen)
        })
    };
    let waited = timeout(Duration::from_mins(10), await_condition(sets(world), "s", shows)).await;
    waited.expect("it is frozen, or goes on").unwrap();
}

async fn reasons(world: &World, uid: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(world.client(), "default");
    let about = ListParams::default().fields(&format!("regarding.uid={uid}"));
    let events = events.list(&about).await.unwrap();
    events.items.into_iter().filter_map(|event| event.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_set_with_far_too_many_machines_is_frozen_goes_on_when_they_are_gone_and_a_user_may_lift_it()
 {
    let world = world().await;
    let template = json!({
        "metadata": { "labels": { "name": "s" } },
        "spec": { "class": { "kind": "MachineClass", "name": "fake" } },
    });
    // Machines of another client that cannot be deleted.
    let set: MachineSet = world
        .apply(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s", "namespace": "default" },
            "spec": {
                "replicas": 4, "selector": { "matchLabels": { "name": "s" } }, "template": template
            },
        }))
        .await;
    overshoot(&world, &set, "name").await;
    until_frozen(&world, true).await;

    // A user lifts it. The machines cannot go, so it is frozen again after a period.
    let lift =
        json!({ "metadata": { "annotations": { "safety.machine.sapcloud.io/unfreeze": "" } } });
    sets(&world).patch("s", &PatchParams::default(), &Patch::Merge(&lift)).await.unwrap();
    until_frozen(&world, false).await;
    let lifted = sets(&world).get("s").await.unwrap();
    assert_eq!(lifted.annotation("safety.machine.sapcloud.io/unfreeze"), None);
    until_frozen(&world, true).await;

    let machines = Api::<Machine>::namespaced(world.client(), "default");
    for (number, machine) in
        machines.list(&ListParams::default()).await.unwrap().into_iter().enumerate()
    {
        let name = machine.name();
        let mut finalizers = machine.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != "example.com/held");
        let free = json!({ "metadata": { "finalizers": finalizers } });
        machines.patch(name, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
        if number < 7 {
            // The set may have deleted it.
            let _gone = machines.delete(name, &DeleteParams::default()).await;
        }
    }
    until_frozen(&world, false).await;
    // The set waits for the end of the freeze, and not for its next pass, which is 10 minutes later.
    let complete = async {
        loop {
            let all = machines.list(&ListParams::default()).await.unwrap();
            if all.items.iter().filter(|machine| !machine.is_deleting()).count() == 4 {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_mins(1), complete).await.expect("it creates again");
    let told = reasons(&world, set.uid()).await;
    for reason in ["FrozeMachineSet", "UnfrozeMachineSet"] {
        assert!(told.iter().any(|it| it == reason), "{reason} is not in {told:?}");
    }
    world.stop().await;
}

/// The integration tests of machine-controller-manager count these events after such a scale-in.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_scaled_in_to_a_third_freezes_its_set_once_and_thaws_it_once() {
    let world = World::start_with(with_sets()).await;
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "d", "namespace": "default" },
        "spec": {
            "replicas": 6, "selector": { "matchLabels": { "app": "d" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 }
            },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "class": { "kind": "MachineClass", "name": "fake" } }
            }
        }
    });
    world.apply::<MachineDeployment>(deployment).await;
    let name = loop {
        let all = sets(&world).list(&ListParams::default()).await.unwrap().items;
        match all.first() {
            Some(set) => break set.name().to_owned(),
            None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    };
    until_runs(&world, &name, 6).await;
    let scaled = json!({ "spec": { "replicas": 2 } });
    let deployments = Api::<MachineDeployment>::namespaced(world.client(), "default");
    let (params, scaled) = (PatchParams::default(), Patch::Merge(&scaled));
    deployments.patch("d", &params, &scaled).await.unwrap();
    until_runs(&world, &name, 2).await;
    tokio::time::sleep(Duration::from_mins(15)).await;
    let set = sets(&world).get(&name).await.unwrap();
    let mut told = reasons(&world, set.uid()).await;
    told.retain(|reason| reason.ends_with("MachineSet"));
    told.sort();
    assert_eq!(told, ["FrozeMachineSet", "UnfrozeMachineSet"]);
    assert_eq!(
        (set.label("freeze"), deployments.get("d").await.unwrap().label("freeze")),
        (None, None)
    );
    world.stop().await;
}
