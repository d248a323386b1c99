//! What a core needs itself is held while there is something to delete, and not longer.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::names::{CLUSTER_ID_CONFIG_MAP, LEADER_LEASE, SETS_LEASE, finalizer};
use ostler_api::{MachineClass, MachineDeployment};
use ostler_server::{TargetCluster, Unusable};
use ostler_tests::objects::instances;
use ostler_tests::world::{Cluster, Setup, World};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// A world whose core serves namespace `shop`, and has its Leases there.
async fn shop() -> World {
    serving("shop", TargetCluster::Control, None).await
}

/// A world whose core serves `namespaces`, and has its Leases in the first of them.
async fn serving(namespaces: &'static str, target: TargetCluster, joins: Option<Client>) -> World {
    let opened = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&opened);
    let tuned = Setup::tuned(move |options| {
        options.settings.controllers = "*".parse().unwrap();
        if told.load(Ordering::Relaxed) {
            options.target = target.clone();
            options.settings.namespaces = namespaces.parse().unwrap();
            options.settings.home = options.settings.namespaces.first().unwrap().to_owned();
        }
    });
    let mut world = World::start_with(Setup { joins, ..tuned }).await;
    world.stop_core().await;
    for name in namespaces.split(',') {
        make_namespace(&world, name).await;
    }
    opened.store(true, Ordering::Relaxed);
    world.start_core().await;
    world
}

async fn make_namespace(world: &World, name: &str) {
    let space = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::<Namespace>::all(world.client()).create(&PostParams::default(), &space).await.unwrap();
}

/// Deletes a namespace, and waits until it is gone.
async fn end_namespace(world: &World, name: &str) {
    let spaces = Api::<Namespace>::all(world.client());
    spaces.delete(name, &DeleteParams::default()).await.unwrap();
    until("it is gone", async || spaces.get_opt(name).await.unwrap().is_none()).await;
}

fn of<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    of_namespace(client, "shop")
}

fn of_namespace<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace)
}

/// A deployment of `replicas` machines in `shop` that take 25 s to delete.
async fn furnish(client: &Client, replicas: i32) {
    furnish_namespace(client, "shop", replicas, json!({})).await;
}

async fn furnish_namespace(client: &Client, namespace: &str, replicas: i32, more: Value) {
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "userData": "join <<BOOTSTRAP_TOKEN>>" } });
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c" }, "provider": "fake.ostler.dev",
        "providerSpec": { "region": "local", "image": "fake-1.0", "latency": { "delete": "25s" } },
        "secretRef": { "name": "s", "namespace": namespace },
    });
    let mut labels = json!({ "app": "w" });
    labels.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
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
    of_namespace::<Secret>(client, namespace).create(&params, &object(secret)).await.unwrap();
    let class: MachineClass = serde_json::from_value(class).unwrap();
    of_namespace(client, namespace).create(&params, &class).await.unwrap();
    let deployment: MachineDeployment = serde_json::from_value(deployment).unwrap();
    of_namespace(client, namespace).create(&params, &deployment).await.unwrap();
    until("all run", async || {
        let machines =
            of_namespace::<Machine>(client, namespace).list(&ListParams::default()).await.unwrap();
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

/// UIDs of what a core needs in `shop`: the cluster id, and both Leases. None that is being deleted.
async fn uids(client: &Client) -> Option<Vec<String>> {
    let uid = |metadata: ObjectMeta| metadata.uid.filter(|_| metadata.deletion_timestamp.is_none());
    let map = of::<ConfigMap>(client).get_opt(CLUSTER_ID_CONFIG_MAP).await.unwrap()?;
    let mut all = vec![uid(map.metadata)?];
    for name in [LEADER_LEASE, SETS_LEASE] {
        all.push(uid(of::<Lease>(client).get_opt(name).await.unwrap()?.metadata)?);
    }
    Some(all)
}

async fn id_in(client: &Client, namespace: &str) -> Option<String> {
    let maps = of_namespace::<ConfigMap>(client, namespace);
    maps.get_opt(CLUSTER_ID_CONFIG_MAP).await.unwrap()?.data?.get("clusterID").cloned()
}

/// Holder and term of the Leases in a namespace, if both are there.
async fn led_in(client: &Client, namespace: &str) -> Option<Vec<(String, i32)>> {
    let mut all = Vec::new();
    for name in [LEADER_LEASE, SETS_LEASE] {
        let lease = of_namespace::<Lease>(client, namespace).get_opt(name).await.unwrap()?;
        let spec = lease.spec?;
        all.push((spec.holder_identity?, spec.lease_transitions?));
    }
    Some(all)
}

#[tokio::test(start_paused = true)]
async fn what_a_user_deletes_alone_goes_and_is_made_again_with_the_same_id_and_term() {
    let world = shop().await;
    let client = world.client();
    furnish(&client, 1).await;
    until("all are held", async || held(&client).await == [true; 3]).await;
    let (before, id) = (uids(&client).await.unwrap(), id_in(&client, "shop").await);
    let terms = led_in(&client, "shop").await;
    of::<ConfigMap>(&client).delete(CLUSTER_ID_CONFIG_MAP, &DeleteParams::default()).await.unwrap();
    for name in [LEADER_LEASE, SETS_LEASE] {
        of::<Lease>(&client).delete(name, &DeleteParams::default()).await.unwrap();
    }
    until("others are there", async || {
        let now = uids(&client).await;
        now.is_some_and(|now| now.iter().zip(&before).all(|(now, before)| now != before))
    })
    .await;
    until("all are held", async || held(&client).await == [true; 3]).await;
    assert_eq!((id_in(&client, "shop").await, led_in(&client, "shop").await), (id, terms));
    assert_eq!(instances(&world), 1);
    end_namespace(&world, "shop").await;
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_of_the_cluster_id_comes_back_if_a_user_takes_it_off() {
    let world = shop().await;
    let client = world.client();
    furnish(&client, 1).await;
    until("all are held", async || held(&client).await == [true; 3]).await;
    let off = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let maps = of::<ConfigMap>(&client);
    maps.patch(CLUSTER_ID_CONFIG_MAP, &PatchParams::default(), &off).await.unwrap();
    assert_eq!(held(&client).await, [false, true, true]);
    until("all are held", async || held(&client).await == [true; 3]).await;
}

#[tokio::test(start_paused = true)]
async fn the_kubeconfig_of_a_target_cluster_stays_until_the_last_node_there_is_deleted() {
    let red = Cluster::start().await;
    let there = red.client();
    let connect = move |text: String| -> futures::future::BoxFuture<'static, _> {
        let client = (text == "to red").then(|| there.clone()).ok_or(Unusable::Malformed);
        Box::pin(async move { client })
    };
    let target = TargetCluster::BySecret { connect: Arc::new(connect), most: 10 };
    let mut world = serving("shop", target, Some(red.client())).await;
    let client = world.client();
    let secret = json!({
        "type": "cluster.x-k8s.io/secret", "metadata": { "name": "red-kubeconfig" },
        "stringData": { "value": "to red" },
    });
    let secret = serde_json::from_value(secret).unwrap();
    of::<Secret>(&client).create(&PostParams::default(), &secret).await.unwrap();
    let label = json!({ "cluster.x-k8s.io/cluster-name": "red" });
    furnish_namespace(&client, "shop", 1, label).await;
    let nodes = async || {
        let nodes = Api::<Node>::all(red.client()).list(&ListParams::default()).await;
        nodes.unwrap().items.len()
    };
    assert_eq!(nodes().await, 1);
    let spaces = Api::<Namespace>::all(client.clone());
    spaces.delete("shop", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    world.crash_core();
    sleep(Duration::from_mins(1)).await;
    let secret = of::<Secret>(&client).get("red-kubeconfig").await.unwrap();
    assert!(secret.metadata.deletion_timestamp.is_some(), "it goes, but not yet");
    world.start_core().await;
    until("it is gone", async || spaces.get_opt("shop").await.unwrap().is_none()).await;
    assert_eq!((instances(&world), nodes().await), (0, 0));
    red.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_core_whose_home_is_deleted_goes_on_in_the_next_namespace_with_the_same_id_and_term() {
    let mut world = serving("shop,office,yard", TargetCluster::Control, None).await;
    let client = world.client();
    for namespace in ["shop", "office"] {
        furnish_namespace(&client, namespace, 1, json!({})).await;
    }
    let (id, terms) = (id_in(&client, "shop").await, led_in(&client, "shop").await.unwrap());
    assert!(id.is_some());
    end_namespace(&world, "shop").await;
    assert_eq!(instances(&world), 1, "that of the other namespace");
    until("both leases are there", async || led_in(&client, "office").await.is_some()).await;
    assert_eq!(led_in(&client, "office").await.unwrap(), terms, "the same process, the same terms");
    assert_eq!(id_in(&client, "office").await, id);
    // The next core finds it, also where the first namespace is there again.
    world.stop_core().await;
    make_namespace(&world, "shop").await;
    world.start_core().await;
    until("it leads", async || {
        let now = led_in(&client, "office").await.unwrap();
        now.iter().zip(&terms).all(|(now, before)| now.0 != before.0 && now.1 > before.1)
    })
    .await;
    assert_eq!((id_in(&client, "shop").await, led_in(&client, "shop").await), (None, None));
    assert_eq!(id_in(&client, "office").await, id);
    furnish(&client, 1).await;
    assert_eq!(instances(&world), 2, "the new one is served, too");
    // And it moves on.
    end_namespace(&world, "office").await;
    until("it is back", async || led_in(&client, "shop").await.is_some()).await;
    assert_eq!((instances(&world), id_in(&client, "shop").await), (1, id));
}

#[tokio::test(start_paused = true)]
async fn an_idle_core_moves_on_and_one_that_is_started_without_its_home_takes_the_next_namespace() {
    let mut world = serving("shop,office,yard", TargetCluster::Control, None).await;
    let client = world.client();
    sleep(Duration::from_secs(30)).await;
    let id = id_in(&client, "shop").await;
    end_namespace(&world, "shop").await;
    until("it leads there", async || led_in(&client, "office").await.is_some()).await;
    assert_eq!(id_in(&client, "office").await, id);
    world.stop_core().await;
    end_namespace(&world, "office").await;
    world.start_core().await;
    until("it leads there", async || led_in(&client, "yard").await.is_some()).await;
    assert_eq!(id_in(&client, "yard").await, id, "made of the same UID and names");
}

#[tokio::test(start_paused = true)]
async fn of_two_cores_one_leads_also_while_their_home_is_deleted() {
    let mut world = serving("shop,office", TargetCluster::Control, None).await;
    let client = world.client();
    let other = world.start_replica().await;
    furnish_namespace(&client, "shop", 1, json!({})).await;
    furnish_namespace(&client, "office", 1, json!({})).await;
    let spaces = Api::<Namespace>::all(client.clone());
    spaces.delete("shop", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    world.stop_core().await;
    // The stopped core may have moved Leases and id, or not. One of the replicas leads; a replica that waits at the old
    // place ends.
    let third = world.start_replica().await;
    until("it is gone", async || spaces.get_opt("shop").await.unwrap().is_none()).await;
    until("both leases are there", async || led_in(&client, "office").await.is_some()).await;
    assert_eq!(instances(&world), 1);
    let led = led_in(&client, "office").await.unwrap();
    let fourth = world.start_replica().await;
    sleep(Duration::from_mins(2)).await;
    assert_eq!(led_in(&client, "office").await.unwrap(), led, "the one that starts waits");
    drop((other, third, fourth));
}
