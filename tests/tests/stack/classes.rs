//! What a class says of itself, whether or not a machine uses it. On a paused clock.

#![expect(clippy::unwrap_used, reason = "tests")]

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

/// Waits until condition `Valid` of the current generation has this status, and returns its reason.
async fn until_valid(world: &World, status: &'static str) -> String {
    let says = move |class: Option<&MachineClass>| {
        let generation = class.and_then(|class| class.metadata.generation);
        let said = class.and_then(MachineClass::valid);
        said.is_some_and(|it| it.status == status && it.observed_generation == generation)
    };
    let api = Api::<MachineClass>::default_namespaced(world.client());
    let waited = tokio::time::timeout(Duration::from_hours(1), await_condition(api, "c", says));
    let found = waited.await.unwrap().unwrap().unwrap();
    found.valid().unwrap().message.clone()
}

#[tokio::test(start_paused = true)]
async fn a_class_says_whether_it_is_valid_as_it_is_now() {
    let world = World::start().await;
    let spec = json!({ "region": "local", "image": "fake-1.0" });
    world.apply::<MachineClass>(class_of("fak.ostler.dev", "c", &spec)).await;
    let typo = until_valid(&world, "Unknown").await;
    assert!(typo.ends_with("connected are those of fake.ostler.dev"), "{typo}");
    edit(&world, json!({ "provider": "fake.ostler.dev" })).await;
    assert_eq!(until_valid(&world, "True").await, "the driver accepts it");
    edit(&world, json!({ "providerSpec": { "tags": { "vm": { "ostler.dev/cluster": "x" } } } }))
        .await;
    let wrong = until_valid(&world, "False").await;
    assert!(wrong.contains("tags.vm"), "{wrong}");
    edit(&world, json!({ "providerSpec": { "tags": null } })).await;
    until_valid(&world, "True").await;
    edit(&world, json!({ "secretRef": { "name": "other" } })).await;
    let missing = until_valid(&world, "False").await;
    assert_eq!(missing, "secret default/other does not exist");
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
