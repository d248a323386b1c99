//! Machines whose user data come from a bootstrap provider, in the whole stack in one process on a paused clock.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::await_condition;
use ostler_api::bootstrap::{BootstrapPhase, InfrastructurePhase};
use ostler_api::machine::{LifecyclePhase, Machine, MachinePhase, WaitReason};
use ostler_tests::objects::{delete, get, gone, in_phase, instances, machine, waits_for};
use ostler_tests::world::World;
use serde_json::{Value, json};

pub(crate) const JOIN: &str =
    "exec kubelet --token=<<BOOTSTRAP_TOKEN>> --hostname-override=<<MACHINE_NAME>>";

/// The kind of a bootstrap provider.
pub(crate) async fn install(world: &World, kind: &str) {
    install_labelled(world, kind, &json!({ "ostler.dev/bootstrap-kind": "true" })).await;
}

pub(crate) async fn install_labelled(world: &World, kind: &str, labels: &Value) {
    let plural = format!("{}s", kind.to_lowercase());
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.bootstrap.example.com"), "labels": labels },
        "spec": {
            "group": "bootstrap.example.com",
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    }))
    .unwrap();
    world.create(&crd).await;
}

pub(crate) fn configs(world: &World, kind: &str) -> Api<DynamicObject> {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("bootstrap.example.com", "v1", kind));
    Api::default_namespaced_with(world.client(), &resource)
}

async fn create_config(world: &World, kind: &str, name: &str) {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "bootstrap.example.com/v1", "kind": kind,
        "metadata": { "name": name }, "spec": {},
    }))
    .unwrap();
    configs(world, kind).create(&PostParams::default(), &object).await.unwrap();
}

/// Sets the status of a bootstrap provider's object.
async fn say(world: &World, kind: &str, name: &str, status: &Value) {
    let patch = json!({ "status": status });
    configs(world, kind)
        .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

fn booted(name: &str, bootstrap: Value) -> Value {
    let mut machine = machine(name, "fake");
    machine["spec"]["bootstrap"] = bootstrap;
    machine["spec"]["version"] = json!("v1.34.1");
    machine
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "configRef": {
        "apiVersion": "bootstrap.example.com/v1", "kind": kind, "name": name,
    } })
}

/// The user data of the instance.
fn user_data(world: &World, machine: &str) -> String {
    use base64::Engine as _;
    let all = world.cloud().instances().unwrap();
    let found = all.iter().find(|one| one.identity.machine_name == machine).unwrap();
    let data = found.bootstrap.user_data.as_ref().unwrap().as_base64();
    String::from_utf8(base64::prelude::BASE64_STANDARD.decode(data).unwrap()).unwrap()
}

fn in_lifecycle(phase: LifecyclePhase) -> impl Fn(Option<&Machine>) -> bool {
    move |machine| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.phase.as_ref()) == Some(&phase)
    }
}

#[tokio::test(start_paused = true)]
async fn a_config_brings_its_machine_from_pending_to_running_and_goes_with_it() {
    let world = World::start().await;
    world.apply::<Machine>(booted("m", reference("Recipe", "r"))).await;
    world.until("m", "without its kind", waits_for(WaitReason::BootstrapKindMissing)).await;
    assert_eq!(get(&world, "m").await.status.unwrap().phase, Some(LifecyclePhase::Pending));

    install(&world, "Recipe").await;
    world.until("m", "without its config", waits_for(WaitReason::BootstrapConfigMissing)).await;
    create_config(&world, "Recipe", "r").await;
    world.until("m", "waiting for its config", waits_for(WaitReason::BootstrapNotReady)).await;
    say(&world, "Recipe", "r", &json!({ "phase": "Cooking" })).await;
    let cooking = BootstrapPhase::Other("Cooking".to_owned());
    let shows = move |machine: Option<&Machine>| {
        let status = machine.and_then(|machine| machine.status.as_ref());
        status.and_then(|status| status.bootstrap_phase.as_ref()) == Some(&cooking)
    };
    world.until("m", "showing the word of the provider", shows).await;

    let uid = get(&world, "m").await.metadata.uid.unwrap();
    let owners = configs(&world, "Recipe").get("r").await.unwrap().metadata.owner_references;
    let owner = owners.unwrap().pop().unwrap();
    assert_eq!((owner.uid, owner.controller), (uid, Some(true)));
    assert_eq!(instances(&world), 0, "no driver was asked to make anything");

    say(&world, "Recipe", "r", &json!({ "ready": true, "bootstrapData": JOIN })).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let machine = get(&world, "m").await;
    assert_eq!(machine.spec.bootstrap.unwrap().data.unwrap().expose(), JOIN);
    assert_eq!(machine.spec.version.as_deref(), Some("v1.34.1"));
    let sent = user_data(&world, "m");
    assert!(sent.ends_with("--hostname-override=m") && !sent.contains('<'), "{sent}");
    let status = machine.status.unwrap();
    assert_eq!(status.phase, Some(LifecyclePhase::Running));
    assert_eq!((status.bootstrap_ready, status.infrastructure_ready), (Some(true), Some(true)));
    assert_eq!(status.infrastructure_phase, Some(InfrastructurePhase::Ready));
    assert_eq!(status.node_ref.unwrap().name, "m");
    assert!(status.version.is_some_and(|version| version.starts_with('v')));

    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    let no_more =
        await_condition(configs(&world, "Recipe"), "r", |object: Option<&DynamicObject>| {
            object.is_none()
        });
    tokio::time::timeout(Duration::from_hours(1), no_more).await.unwrap().unwrap();
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_none_of_a_bootstrap_provider_is_not_owned_and_outlives_its_machine() {
    let world = World::start().await;
    install_labelled(
        &world,
        "Database",
        &json!({ "cluster.x-k8s.io/provider": "infrastructure-a" }),
    )
    .await;
    create_config(&world, "Database", "precious").await;
    world.apply::<Machine>(booted("m", reference("Database", "precious"))).await;
    world.until("m", "refused", waits_for(WaitReason::BootstrapKindUnmarked)).await;
    let owners = async || {
        let object = configs(&world, "Database").get("precious").await.unwrap();
        object.metadata.owner_references.unwrap_or_default()
    };
    assert_eq!(owners().await, []);
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    assert_eq!(owners().await, [], "it is still there");

    // A label that comes later is noticed.
    world.apply::<Machine>(booted("n", reference("Database", "precious"))).await;
    world.until("n", "refused", waits_for(WaitReason::BootstrapKindUnmarked)).await;
    let label = json!({ "metadata": { "labels": { "cluster.x-k8s.io/provider": "bootstrap-a" } } });
    let definitions = Api::<CustomResourceDefinition>::all(world.client());
    let name = "databases.bootstrap.example.com";
    definitions.patch(name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    world.until("n", "waiting", waits_for(WaitReason::BootstrapNotReady)).await;
    let uid = get(&world, "n").await.metadata.uid.unwrap();
    assert_eq!(owners().await.pop().unwrap().uid, uid);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_form_of_todays_cluster_api_names_a_secret() {
    let world = World::start().await;
    install(&world, "Recipe").await;
    create_config(&world, "Recipe", "r").await;
    world.apply::<Machine>(booted("m", reference("Recipe", "r"))).await;
    let status =
        json!({ "initialization": { "dataSecretCreated": true }, "dataSecretName": "r-data" });
    say(&world, "Recipe", "r", &status).await;
    world.until("m", "without its secret", waits_for(WaitReason::BootstrapSecretMissing)).await;
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": { "name": "r-data", "namespace": "default" }, "stringData": data,
        })
    };
    world.apply::<Secret>(secret(json!({ "format": "cloud-config" }))).await;
    world.until("m", "without its key", waits_for(WaitReason::BootstrapSecretInvalid)).await;
    let patch = Patch::Merge(secret(json!({ "value": JOIN })));
    let secrets = Api::<Secret>::default_namespaced(world.client());
    secrets.patch("r-data", &PatchParams::default(), &patch).await.unwrap();
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    let bootstrap = get(&world, "m").await.spec.bootstrap.unwrap();
    assert_eq!((bootstrap.data_secret_name.as_deref(), bootstrap.data), (Some("r-data"), None));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn data_that_an_operator_puts_in_end_the_wait_at_once() {
    let world = World::start().await;
    world.apply::<Machine>(booted("m", json!({}))).await;
    world.until("m", "without data", waits_for(WaitReason::BootstrapDataMissing)).await;
    let began = world.now();
    world.patch_machine("m", json!({ "spec": { "bootstrap": { "data": JOIN } } })).await;
    let is_asked_for = |it: Option<&Machine>| it.is_some_and(|it| it.operation_record().is_some());
    world.until("m", "asked for", is_asked_for).await;
    assert!(world.now().duration_since(began).as_secs() < 5, "no timer is waited for");
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_config_that_fails_fails_its_machine_which_then_goes_without_a_driver() {
    let mut world = World::start().await;
    world.stop_driver().await;
    install(&world, "Recipe").await;
    create_config(&world, "Recipe", "r").await;
    world.apply::<Machine>(booted("m", reference("Recipe", "r"))).await;
    let status = json!({ "failureReason": "NoFlour", "failureMessage": "the shop is closed" });
    say(&world, "Recipe", "r", &status).await;
    world.until("m", "Failed", in_lifecycle(LifecyclePhase::Failed)).await;
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.failure_reason.unwrap().as_str(), "NoFlour");
    assert_eq!(status.failure_message.as_deref(), Some("Recipe r failed: the shop is closed"));
    delete(&world, "m").await;
    world.until("m", "gone", gone).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_core_goes_on_with_what_the_last_one_waited_for() {
    let mut world = World::start().await;
    install(&world, "Recipe").await;
    create_config(&world, "Recipe", "r").await;
    world.apply::<Machine>(booted("m", reference("Recipe", "r"))).await;
    world.until("m", "waiting for its config", waits_for(WaitReason::BootstrapNotReady)).await;
    world.crash_core();
    say(&world, "Recipe", "r", &json!({ "ready": true, "bootstrapData": JOIN })).await;
    world.start_core().await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    assert_eq!(instances(&world), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_more_than_can_be_watched_has_its_turn_when_another_is_not_used_any_more() {
    let world = World::start().await;
    for index in 0..=16 {
        let kind = format!("Recipe{index}");
        install(&world, &kind).await;
        create_config(&world, &kind, "r").await;
    }
    for index in 0..16 {
        let name = format!("m-{index}");
        let machine = booted(&name, reference(&format!("Recipe{index}"), "r"));
        world.apply::<Machine>(machine).await;
        world.until(&name, "waiting", waits_for(WaitReason::BootstrapNotReady)).await;
    }
    world.apply::<Machine>(booted("late", reference("Recipe16", "r"))).await;
    world.until("late", "refused", waits_for(WaitReason::BootstrapKindUnreadable)).await;
    delete(&world, "m-3").await;
    world.until("late", "waiting", waits_for(WaitReason::BootstrapNotReady)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_and_comes_back_is_watched_again() {
    let world = World::start().await;
    install(&world, "Recipe").await;
    create_config(&world, "Recipe", "r").await;
    world.apply::<Machine>(booted("m", reference("Recipe", "r"))).await;
    world.until("m", "waiting for its config", waits_for(WaitReason::BootstrapNotReady)).await;
    let crds = Api::<CustomResourceDefinition>::all(world.client());
    let name = "recipes.bootstrap.example.com";
    crds.delete(name, &DeleteParams::default()).await.unwrap();
    let no_more =
        await_condition(crds, name, |crd: Option<&CustomResourceDefinition>| crd.is_none());
    tokio::time::timeout(Duration::from_hours(1), no_more).await.unwrap().unwrap();
    world.until("m", "without its kind", waits_for(WaitReason::BootstrapKindMissing)).await;
    install(&world, "Recipe").await;
    create_config(&world, "Recipe", "r").await;
    say(&world, "Recipe", "r", &json!({ "ready": true, "bootstrapData": JOIN })).await;
    world.until("m", "Running", in_phase(MachinePhase::Running)).await;
    world.stop().await;
}
