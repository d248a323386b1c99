//! What a core needs itself is held while there is something to delete, and not longer.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Resource};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::{CLUSTER_ID_CONFIG_MAP, LEADER_LEASE, SETS_LEASE, finalizer};
use ostler_api::{MachineClass, MachineDeployment};
use ostler_tests::objects::instances;
use ostler_tests::world::{Setup, World};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// A world whose core serves namespace `shop`, and has its Leases there.
async fn shop() -> World {
    let opened = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&opened);
    let setup = Setup::tuned(move |options| {
        options.settings.controllers = "*".parse().unwrap();
        if told.load(Ordering::Relaxed) {
            options.settings.namespaces = "shop".parse().unwrap();
            "shop".clone_into(&mut options.settings.home);
        }
    });
    let mut world = World::start_with(setup).await;
    world.stop_core().await;
    let shop = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    Api::<Namespace>::all(world.client()).create(&PostParams::default(), &shop).await.unwrap();
    opened.store(true, Ordering::Relaxed);
    world.start_core().await;
    world
}

fn of<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), "shop")
}

/// A deployment of `replicas` machines that take 25 s to delete.
async fn furnish(client: &Client, replicas: i32) {
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "userData": "join <<BOOTSTRAP_TOKEN>>" } });
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c" }, "provider": "fake.ostler.dev",
        "providerSpec": { "region": "local", "image": "fake-1.0", "latency": { "delete": "25s" } },
        "secretRef": { "name": "s", "namespace": "shop" },
    });
    let labels = json!({ "app": "w" });
    let spec = json!({ "class": { "kind": "MachineClass", "name": "c" } });
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "w" },
        "spec": {
            "replicas": replicas, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    });
    let object = |object: Value| serde_json::from_value(object).unwrap();
    let params = PostParams::default();
    of::<Secret>(client).create(&params, &object(secret)).await.unwrap();
    let class: MachineClass = serde_json::from_value(class).unwrap();
    of(client).create(&params, &class).await.unwrap();
    let deployment: MachineDeployment = serde_json::from_value(deployment).unwrap();
    of(client).create(&params, &deployment).await.unwrap();
    until("all run", async || {
        let machines = of::<Machine>(client).list(&ListParams::default()).await.unwrap();
        let running = machines.iter().filter(|it| it.phase() == MachinePhase::Running).count();
        running == usize::try_from(replicas).unwrap()
    })
    .await;
}

async fn until(what: &str, met: impl AsyncFn() -> bool) {
    let waited = async {
        while !met().await {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_hours(1), waited).await.expect(what);
}

/// Whether each of what a core needs is held: both Leases, and the cluster id.
async fn held(client: &Client) -> Vec<bool> {
    let is_held = |metadata: ObjectMeta| {
        metadata.finalizers.unwrap_or_default().iter().any(|name| name == finalizer::CORE)
    };
    let map = of::<ConfigMap>(client).get(CLUSTER_ID_CONFIG_MAP).await.unwrap();
    let mut held = vec![is_held(map.metadata)];
    for name in [LEADER_LEASE, SETS_LEASE] {
        held.push(is_held(of::<Lease>(client).get(name).await.unwrap().metadata));
    }
    held
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_after_its_last_instance_also_if_its_core_is_started_only_then() {
    let mut world = shop().await;
    let client = world.client();
    furnish(&client, 2).await;
    until("all are held", async || held(&client).await == [true; 3]).await;
    let spaces = Api::<Namespace>::all(client.clone());
    spaces.delete("shop", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    world.crash_core();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(held(&client).await, [true; 3], "no core leads, and machines are there");
    world.start_core().await;
    until("it is gone", async || spaces.get_opt("shop").await.unwrap().is_none()).await;
    assert_eq!(instances(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn what_an_idle_core_needs_is_not_held_so_that_its_namespace_goes_without_it() {
    let mut world = shop().await;
    let client = world.client();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(held(&client).await, [false; 3]);
    furnish(&client, 1).await;
    until("all are held", async || held(&client).await == [true; 3]).await;
    let deployments = of::<MachineDeployment>(&client);
    deployments.delete("w", &DeleteParams::foreground()).await.unwrap();
    of::<MachineClass>(&client).delete("c", &DeleteParams::default()).await.unwrap();
    until("none is held", async || held(&client).await == [false; 3]).await;
    world.crash_core();
    let spaces = Api::<Namespace>::all(client.clone());
    spaces.delete("shop", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || spaces.get_opt("shop").await.unwrap().is_none()).await;
}
