//! `--controllers` and the two Leases: which process runs which controllers. On a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::wait::await_condition;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_tests::objects;
use ostler_tests::world::{Setup, World};
use serde_json::json;
use tokio::time::timeout;

const MACHINES: &str = "machine-controller";
const SETS: &str = "machine-controller-manager";

fn running(controllers: &'static str) -> Setup {
    Setup::tuned(move |options| options.settings.controllers = controllers.parse().unwrap())
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client(), "default")
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

async fn until_held(world: &World, lease: &str, by: &'static str) {
    let held = |lease: Option<&Lease>| lease.and_then(holder) == Some(by);
    let held = await_condition(leases(world), lease, held);
    timeout(Duration::from_mins(5), held).await.expect("the Lease gets that holder").unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_core_that_runs_the_machines_takes_the_lease_of_the_sets_and_gives_it_up_with_them() {
    let mut world = World::start_with(running("*")).await;
    until_held(&world, SETS, "core-0").await;
    let mut second = world.start_replica().await;
    second.core.synced().wait_for(|synced| *synced).await.unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    for lease in [MACHINES, SETS] {
        let lease = leases(&world).get(lease).await.unwrap();
        assert_eq!(holder(&lease), Some("core-0"));
    }
    world.stop_core().await;
    let released = leases(&world).get(SETS).await.unwrap();
    assert_ne!(holder(&released), Some("core-0"), "it is given up, and does not have to expire");
    second.core.ready().await.unwrap();
    until_held(&world, SETS, "core-1").await;
    second.stop().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_another_process_holds_the_lease_of_the_sets_the_core_runs_the_machines_and_waits() {
    let mut world = World::start_with(running("*")).await;
    until_held(&world, SETS, "core-0").await;
    world.stop_core().await;
    let held: Lease = serde_json::from_value(json!({
        "metadata": { "name": SETS, "namespace": "default" },
        "spec": {
            "holderIdentity": "mcm-of-upstream", "leaseDurationSeconds": 600, "leaseTransitions": 1,
            "renewTime": Timestamp::UNIX_EPOCH.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
        },
    }))
    .unwrap();
    leases(&world).delete(SETS, &kube::api::DeleteParams::default()).await.unwrap();
    leases(&world).create(&kube::api::PostParams::default(), &held).await.unwrap();
    world.start_core().await;
    world.apply::<Machine>(objects::machine("m-0", "fake")).await;
    world.until("m-0", "Running", objects::in_phase(MachinePhase::Running)).await;
    let lease = leases(&world).get(SETS).await.unwrap();
    assert_eq!(holder(&lease), Some("mcm-of-upstream"));
    // The holder is gone and does not renew the Lease.
    tokio::time::sleep(Duration::from_mins(10)).await;
    until_held(&world, SETS, "core-1").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_with_the_set_controllers_alone_takes_their_lease_and_not_that_of_the_machines() {
    let world = World::start_with(running("machineset,machinedeployment")).await;
    until_held(&world, SETS, "core-0").await;
    assert!(leases(&world).get_opt(MACHINES).await.unwrap().is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_with_the_machines_alone_leaves_the_lease_of_the_sets_to_others() {
    let world = World::start_with(running("machine")).await;
    until_held(&world, MACHINES, "core-0").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(leases(&world).get_opt(SETS).await.unwrap().is_none());
    world.stop().await;
}
