//! Cores that die at the writes of the life of one Machine, or cannot make them. On a paused clock.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use ostler_api::MachineClass;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_driver_fake::fault::Verb;
use ostler_tests::objects::{class, delete, get, gone, in_phase, instances, machine, nodes};
use ostler_tests::setup::Deaths;
use ostler_tests::world::{Setup, World};
use serde_json::json;

use crate::pool_safety::Dying;

/// Secrets of bootstrap tokens.
async fn tokens(world: &World) -> Vec<String> {
    let secrets = Api::<Secret>::namespaced(world.client(), "kube-system");
    let all = secrets.list(&ListParams::default()).await.into_iter().flatten();
    all.map(|it| it.name_any()).filter(|name| name.starts_with("bootstrap-token-")).collect()
}

/// Whether the driver initialized the instance of a machine.
fn was_initialized(world: &World, name: &str) -> bool {
    let mut calls = world.calls().into_iter();
    calls.any(|call| call.operation == Verb::InitializeMachine && call.name == name)
}

#[tokio::test(start_paused = true)]
async fn a_core_that_dies_at_any_write_of_the_life_of_a_machine_makes_one_instance_and_leaves_nothing()
 {
    let deaths = Arc::<Deaths>::default();
    let world = World::start_with(Setup { deaths: Arc::clone(&deaths), ..Setup::default() }).await;
    let plain = class("plain", &json!({ "region": "local", "image": "fake-1.0" }));
    world.apply::<MachineClass>(plain).await;
    let mut dying = Dying { world, deaths, died: 0 };
    for of_class in ["plain", "fake"] {
        for first in 0..6 {
            let name = format!("{of_class}-{first}");
            let said = format!("{name}, {} died", dying.died);
            dying.deaths.after(Some(first));
            dying.world.apply::<Machine>(machine(&name, of_class)).await;
            let runs = async |world: &World| {
                world.until(&name, "Running", in_phase(MachinePhase::Running)).await;
            };
            dying.live(runs).await;
            assert_eq!(instances(&dying.world), 1, "{said}");
            let initialized = was_initialized(&dying.world, &name);
            assert_eq!(initialized, of_class == "fake", "{said}");

            delete(&dying.world, &name).await;
            dying.live(async |world| world.until(&name, "gone", gone).await).await;
            assert_eq!((instances(&dying.world), nodes(&dying.world).await), (0, 0), "{said}");
            assert_eq!(tokens(&dying.world).await, [""; 0], "{said}");
        }
    }
    assert!(dying.died > 20, "{} cores died", dying.died);
    dying.deaths.after(None);
    dying.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_before_it_could_be_held_leaves_no_bootstrap_token() {
    let world = World::start_with(Setup { conflict_one_in: 1, ..Setup::default() }).await;
    world.apply::<Machine>(machine("m", "fake")).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(get(&world, "m").await.metadata.finalizers, None, "no change gets through");
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((tokens(&world).await, instances(&world)), (Vec::new(), 0));
    world.stop().await;
}
