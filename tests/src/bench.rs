//! Shared parts of benchmarks on real processes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::Kubeconfig;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_dial::cluster;
use serde::de::DeserializeOwned;

use crate::stack::Stack;
use crate::tools::root;

/// Concurrent requests of the benchmark.
const WRITERS: usize = 16;

/// A kind that is watched.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + 'static
{
}

/// Creates the fake driver's class and its secret.
///
/// # Panics
/// If they are refused.
pub fn apply_class(stack: &Stack) {
    apply(stack, "fake", &["secret.yaml", "class.yaml"]);
}

/// Applies files of an example.
///
/// # Panics
/// If they are refused.
pub fn apply(stack: &Stack, example: &str, files: &[&str]) {
    let examples = root().join("deploy/examples").join(example);
    for file in files {
        let path = examples.join(file);
        stack.kubectl().run(["apply", "-f", path.to_str().expect("our paths are UTF-8")]);
    }
}

/// A client of the API server of this stack.
///
/// # Panics
/// If there is none.
pub async fn client(stack: &Stack) -> Client {
    let kubeconfig = Kubeconfig::read_from(stack.kubeconfig()).expect("the kubeconfig is there");
    let config = cluster::config(kubeconfig).await.expect("the kubeconfig is good");
    cluster::client(config).expect("a client can be made")
}

/// The newest revision of the API server: every write of any client makes one.
///
/// # Panics
/// If it does not answer.
pub async fn revision(client: &Client) -> u64 {
    Api::<ConfigMap>::default_namespaced(client.clone())
        .list(&ListParams::default())
        .await
        .expect("lists are answered")
        .metadata
        .resource_version
        .and_then(|version| version.parse().ok())
        .expect("a list has a revision")
}

/// From the first request for machines of these names until all run.
///
/// # Panics
/// If a request is refused or the watch ends.
pub async fn create(client: &Client, names: &[String]) -> Duration {
    let api = Api::<Machine>::default_namespaced(client.clone());
    let from = watch_from(&api).await;
    let started = Instant::now();
    let manifests = names.iter().map(|name| manifest(name));
    stream::iter(manifests)
        .map(|machine| {
            let api = api.clone();
            async move { api.create(&PostParams::default(), &machine).await }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await
        .expect("machines are accepted");
    let mut left: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    follow(&api, &from, |event| {
        if let WatchEvent::Modified(machine) | WatchEvent::Added(machine) = event
            && machine.phase() == MachinePhase::Running
        {
            left.remove(machine.metadata.name.as_deref().unwrap_or_default());
        }
        left.is_empty()
    })
    .await;
    started.elapsed()
}

/// From the first deletion of machines of these names until all are gone.
///
/// # Panics
/// If a request is refused or the watch ends.
pub async fn delete(client: &Client, names: &[String]) -> Duration {
    let api = Api::<Machine>::default_namespaced(client.clone());
    let from = watch_from(&api).await;
    let started = Instant::now();
    stream::iter(names)
        .map(|name| {
            let api = api.clone();
            async move { api.delete(name, &DeleteParams::default()).await }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await
        .expect("machines can be deleted");
    let mut left: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    follow(&api, &from, |event| {
        if let WatchEvent::Deleted(machine) = event {
            left.remove(machine.metadata.name.as_deref().unwrap_or_default());
        }
        left.is_empty()
    })
    .await;
    started.elapsed()
}

/// Where a watch begins that is to miss nothing from now on.
///
/// # Panics
/// If the list is not answered.
pub async fn watch_from<K: Kind>(api: &Api<K>) -> String {
    let list = api.list(&ListParams::default()).await.expect("lists are answered");
    list.metadata.resource_version.expect("a list has a revision")
}

/// Feeds every event to `done` until it says so.
///
/// # Panics
/// If the watch ends.
pub async fn follow<K: Kind>(
    api: &Api<K>,
    from: &str,
    mut done: impl FnMut(WatchEvent<K>) -> bool,
) {
    let mut events =
        api.watch(&WatchParams::default(), from).await.expect("watches are answered").boxed();
    while let Some(event) = events.try_next().await.expect("the watch goes on") {
        if done(event) {
            return;
        }
    }
    panic!("the watch ended");
}

/// Times of the same thing in one line.
pub fn row(what: &str, times: &mut [Duration]) -> String {
    times.sort_unstable();
    let pick = |index: usize| times.get(index).copied().unwrap_or_default();
    format!(
        "{what}: median {:.1?}, min {:.1?}, max {:.1?} (n={})",
        pick(times.len() / 2),
        pick(0),
        pick(times.len().saturating_sub(1)),
        times.len()
    )
}

fn manifest(name: &str) -> Machine {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": { "name": name },
        "spec": { "class": { "kind": "MachineClass", "name": "fake" } },
    }))
    .expect("the manifest is a Machine")
}
