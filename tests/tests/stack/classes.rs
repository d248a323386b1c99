//! What a class says of itself, whether or not a machine uses it. On a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use ostler_api::MachineClass;
use ostler_tests::objects::{class_of, machine};
use ostler_tests::rights::Request;
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};

async fn edit(world: &World, patch: Value) {
    let api = Api::<MachineClass>::default_namespaced(world.client());
    api.patch("c", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until condition `Valid` of the current generation has this status and reason.
async fn until_valid(world: &World, status: &'static str, why: &'static str) {
    let says = move |class: Option<&MachineClass>| {
        let generation = class.and_then(|class| class.metadata.generation);
        let said = class.and_then(MachineClass::valid);
        said.is_some_and(|it| {
            it.status == status && it.observed_generation == generation && it.message.ends_with(why)
        })
    };
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let waited = tokio::time::timeout(Duration::from_hours(1), await_condition(api, "c", says));
    waited.await.unwrap_or_else(|_| panic!("never {status} since {why}")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_class_says_whether_it_is_valid_as_it_is_now() {
    let world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0" });
    world.apply::<MachineClass>(class_of("fak.ostler.dev", "c", &spec)).await;
    until_valid(&world, "Unknown", "drivers are connected for fake.ostler.dev").await;
    edit(&world, json!({ "provider": "fake.ostler.dev" })).await;
    until_valid(&world, "True", "the driver accepts it").await;
    edit(&world, json!({ "providerSpec": { "tags": { "vm": { "ostler.dev/cluster": "x" } } } }))
        .await;
    until_valid(&world, "False", "which is the driver's").await;
    edit(&world, json!({ "providerSpec": { "tags": null } })).await;
    until_valid(&world, "True", "the driver accepts it").await;
    edit(&world, json!({ "secretRef": { "name": "other" } })).await;
    until_valid(&world, "False", "secret default/other does not exist").await;
    world.stop().await;
}

/// As with a definition of machine-controller-manager, which has no status.
#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_holds_up_nothing() {
    let forbids: fn(&Request) -> bool = |asked| asked.resource == "machineclasses/status";
    let world = World::start_with(Setup { forbids, ..Setup::default() }).await;
    world.apply::<ostler_api::Machine>(machine("m", "fake")).await;
    let running = ostler_tests::objects::in_phase(ostler_api::machine::MachinePhase::Running);
    world.until("m", "Running", running).await;
    let api = Api::<MachineClass>::default_namespaced(world.client());
    assert_eq!(api.get("fake").await.unwrap().status, None);
    world.stop().await;
}
