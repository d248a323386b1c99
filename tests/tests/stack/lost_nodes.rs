//! Nodes of a MachineDeployment are lost: replacements, waits, and the effect on a rollout. On a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition};
use ostler_api::machine::{Machine, MachinePhase, WaitReason};
use ostler_api::{MachineClass, MachineDeployment};
use ostler_driver_fake::spec::KubeletSpec;
use ostler_tests::objects::class;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::{sleep, timeout};

async fn world(replicas: i32, surge: i32) -> World {
    let setup = Setup::tuned(|options| options.settings.controllers = "*".parse().unwrap());
    let world = World::start_with(setup).await;
    let next = json!({ "region": "local", "image": "fake-2.0", "latency": { "create": "5s" } });
    world.apply::<MachineClass>(class("next", &next)).await;
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "d", "namespace": "default" },
        "spec": {
            "replicas": replicas,
            // Label `app`, not `name`: the selector of the deployment decides about its machines.
            "selector": { "matchLabels": { "app": "d" } },
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": 0 }
            },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": {
                    "class": { "kind": "MachineClass", "name": "fake" }, "healthTimeout": "2m"
                }
            }
        }
    });
    world.apply::<MachineDeployment>(deployment).await;
    until(&world, "rolled out", rolled_out).await;
    world
}

fn api(world: &World) -> Api<MachineDeployment> {
    Api::default_namespaced(world.client())
}

async fn machines(world: &World) -> Vec<Machine> {
    let api = Api::<Machine>::default_namespaced(world.client());
    api.list(&ListParams::default()).await.unwrap().items
}

async fn until(world: &World, what: &str, condition: impl Condition<MachineDeployment>) {
    let day = Duration::from_hours(24);
    let Ok(met) = timeout(day, await_condition(api(world), "d", condition)).await else {
        let phases: Vec<_> =
            machines(world).await.iter().map(|it| (it.name().to_owned(), it.phase())).collect();
        panic!("never {what} within a day: {:#?} {phases:#?}", api(world).get("d").await);
    };
    met.unwrap();
}

fn rolled_out(deployment: Option<&MachineDeployment>) -> bool {
    let Some(deployment) = deployment else { return false };
    let Some(status) = &deployment.status else { return false };
    let wanted = deployment.spec.replicas();
    status.observed_generation == deployment.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
}

fn shows_mass_failure(shown: bool) -> impl Fn(Option<&MachineDeployment>) -> bool {
    move |deployment| {
        let status = deployment.and_then(|it| it.status.as_ref());
        status.is_some_and(|status| {
            status.conditions.iter().any(|it| it.type_.as_str() == "MassFailure") == shown
        })
    }
}

async fn reasons(world: &World) -> BTreeSet<String> {
    let events = Api::<Event>::default_namespaced(world.client());
    let events = events.list(&ListParams::default()).await.unwrap();
    let of = |event: Event| {
        let about = event.regarding?;
        event.reason.filter(|_| about.kind.as_deref() == Some("MachineDeployment"))
    };
    events.items.into_iter().filter_map(of).collect()
}

/// The kubelet of a machine reports its Node as Ready or not.
fn kubelet(world: &World, machine: &Machine, ready: bool) {
    let fault = if ready { json!({}) } else { json!({ "notReadyAfter": "1s" }) };
    let kubelet: KubeletSpec = serde_json::from_value(fault).unwrap();
    world.cloud().behave(machine.provider_id().unwrap().as_str(), &kubelet).unwrap();
}

/// Whether the zone has room for new instances.
async fn capacity(world: &World, there: bool) {
    let fault = json!({ "operation": "CreateMachine", "error": "ResourceExhausted" });
    let faults = if there { Vec::new() } else { vec![fault] };
    let patch = json!({ "providerSpec": { "faults": faults } });
    let classes = Api::<MachineClass>::default_namespaced(world.client());
    classes.patch("fake", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn held(machines: &[Machine], by: &WaitReason) -> usize {
    let waits = |it: &&Machine| {
        let wait = it.status.as_ref().and_then(|status| status.waiting_for.as_ref());
        wait.is_some_and(|wait| wait.reason == *by)
    };
    machines.iter().filter(waits).count()
}

#[tokio::test(start_paused = true)]
async fn the_zone_outage_that_turns_half_of_a_deployment_unknown_replaces_one_and_holds_the_rest() {
    let world = world(10, 1).await;
    let before = machines(&world).await;
    let (lost, _) = before.split_at(5);
    capacity(&world, false).await;
    for machine in lost {
        kubelet(&world, machine, false);
    }
    until(&world, "a mass failure", shows_mass_failure(true)).await;
    sleep(Duration::from_secs(5)).await;
    assert!(reasons(&world).await.contains("MassFailure"));
    // Otherwise the next one would go after 22 minutes.
    sleep(Duration::from_mins(50)).await;
    let now = machines(&world).await;
    let left = lost.iter().filter(|it| now.iter().any(|other| other.uid() == it.uid())).count();
    assert_eq!(left, 4, "one is replaced, however long that takes");
    assert_eq!(held(&now, &WaitReason::MassFailure), 4, "#760");
    let metrics = world.metrics();
    for series in [
        r#"ostler_machines_waiting{reason="MassFailure"} 4"#,
        r#"mcm_machine_deployment_status_condition{name="d",namespace="default",condition="MassFailure"} 1"#,
    ] {
        assert!(metrics.contains(series), "{series} is not in {metrics}");
    }
    // The zone is back, and so are the Nodes.
    capacity(&world, true).await;
    for machine in lost {
        if now.iter().any(|other| other.uid() == machine.uid()) {
            kubelet(&world, machine, true);
        }
    }
    until(&world, "well", shows_mass_failure(false)).await;
    sleep(Duration::from_secs(5)).await;
    assert!(reasons(&world).await.contains("MassFailureEnded"));
    until(&world, "rolled out", rolled_out).await;
    let now = machines(&world).await;
    let kept = before.iter().filter(|it| now.iter().any(|other| other.uid() == it.uid())).count();
    assert_eq!((kept, now.len()), (9, 10));
    let status = api(&world).get("d").await.unwrap().status.unwrap();
    assert_eq!(status.conditions.len(), 2, "{:?}", status.conditions);
    world.stop().await;
}

/// The fewest machines that are available and the most that live, at any time until `done`.
async fn census(world: &World, mut done: impl Future<Output = ()> + Unpin) -> (usize, usize) {
    let (mut fewest, mut most) = (usize::MAX, 0);
    loop {
        let all = machines(world).await;
        let living = || all.iter().filter(|it| !it.is_deleting());
        let available = living().filter(|it| it.phase() == MachinePhase::Running).count();
        (fewest, most) = (fewest.min(available), most.max(living().count()));
        // Often enough to see every step: a creation takes 5 s.
        if timeout(Duration::from_secs(1), &mut done).await.is_ok() {
            return (fewest, most);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_in_the_middle_of_a_rollout_draws_on_the_same_budget() {
    let world = world(4, 1).await;
    let next = json!({ "spec": { "template": { "spec": { "class": { "name": "next" } } } } });
    api(&world).patch("d", &PatchParams::default(), &Patch::Merge(next)).await.unwrap();
    until(&world, "in the middle", |it: Option<&MachineDeployment>| {
        it.is_some_and(|it| {
            let status = it.status.as_ref();
            status.is_some_and(|status| {
                status.observed_generation == it.metadata.generation && status.updated_replicas == 2
            })
        })
    })
    .await;
    let all = machines(&world).await;
    let is_new = |it: &&Machine| {
        it.spec.class.name == "next" && it.phase() == MachinePhase::Running && !it.is_deleting()
    };
    let broken = all.iter().find(is_new).unwrap();
    kubelet(&world, broken, false);
    let done = Box::pin(until(&world, "rolled out", rolled_out));
    let (fewest, most) = census(&world, done).await;
    assert_eq!(fewest, 3, "the failure took one, and the rollout none");
    assert!(most <= 5, "{most}");
    let now = machines(&world).await;
    assert!(now.iter().all(|it| it.spec.class.name == "next" && it.uid() != broken.uid()));
    world.stop().await;
}
