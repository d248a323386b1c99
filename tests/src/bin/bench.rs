//! Measures the main job on real processes: API server, core and fake driver with no latency.
//!
//! `cargo run --release -p ostler-tests --bin bench -- [MACHINES]`

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops where it cannot measure"
)]

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ostler_api::machine::{Machine, MachinePhase};
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools::root;

/// Single machines measured one after the other.
const SINGLES: usize = 20;
/// Requests that the benchmark itself keeps under way.
const WRITERS: usize = 16;

#[tokio::main]
async fn main() {
    let machines = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1000);
    let Some(mut stack) = Stack::start() else { return };
    let examples = root().join("deploy/examples/fake");
    for file in ["secret.yaml", "class.yaml"] {
        let path = examples.join(file);
        stack.kubectl().run(["apply", "-f", path.to_str().expect("our paths are UTF-8")]);
    }
    let client = client(&stack).await;

    let (mut up, mut down) = (Vec::new(), Vec::new());
    for index in 0..SINGLES {
        let (running, gone) = life(&client, &[format!("single-{index}")]).await;
        up.push(running);
        down.push(gone);
    }
    row("1 machine, apply to Running", &mut up);
    row("1 machine, delete to gone", &mut down);

    let names: Vec<String> = (0..machines).map(|index| format!("many-{index:05}")).collect();
    let idle = stack.resident_kib(Part::Core);
    let before = revision(&client).await;
    let running = create(&client, &names).await;
    let resident = stack.resident_kib(Part::Core);
    let written_up = revision(&client).await - before;
    let gone = delete(&client, &names).await;
    let written = revision(&client).await - before;
    row(&format!("{machines} machines, apply to Running"), &mut [running]);
    row(&format!("{machines} machines, delete to gone"), &mut [gone]);
    println!(
        "API writes per machine, all parties: {:.1} to Running, {:.1} per life",
        each(written_up, machines),
        each(written, machines)
    );
    println!(
        "memory of the core: {} MiB idle, {} MiB with {machines} machines",
        idle / 1024,
        resident / 1024
    );
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn each(total: u64, machines: usize) -> f64 {
    total as f64 / machines as f64
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let pick = |index: usize| times.get(index).copied().unwrap_or_default();
    println!(
        "{what}: median {:.1?}, min {:.1?}, max {:.1?} (n={})",
        pick(times.len() / 2),
        pick(0),
        pick(times.len().saturating_sub(1)),
        times.len()
    );
}

async fn client(stack: &Stack) -> Client {
    let kubeconfig = Kubeconfig::read_from(stack.kubeconfig()).expect("the kubeconfig is there");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("the kubeconfig is good");
    Client::try_from(config).expect("a client can be made")
}

/// The newest revision of the API server: every write of any client makes one.
async fn revision(client: &Client) -> u64 {
    Api::<ConfigMap>::default_namespaced(client.clone())
        .list(&ListParams::default())
        .await
        .expect("lists are answered")
        .metadata
        .resource_version
        .and_then(|version| version.parse().ok())
        .expect("a list has a revision")
}

async fn life(client: &Client, names: &[String]) -> (Duration, Duration) {
    (create(client, names).await, delete(client, names).await)
}

async fn create(client: &Client, names: &[String]) -> Duration {
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
    let mut left: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
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

async fn delete(client: &Client, names: &[String]) -> Duration {
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
    let mut left: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
    follow(&api, &from, |event| {
        if let WatchEvent::Deleted(machine) = event {
            left.remove(machine.metadata.name.as_deref().unwrap_or_default());
        }
        left.is_empty()
    })
    .await;
    started.elapsed()
}

async fn watch_from(api: &Api<Machine>) -> String {
    let list = api.list(&ListParams::default()).await.expect("lists are answered");
    list.metadata.resource_version.expect("a list has a revision")
}

/// Feeds every event to `done` until it says so.
async fn follow(api: &Api<Machine>, from: &str, mut done: impl FnMut(WatchEvent<Machine>) -> bool) {
    let mut events =
        api.watch(&WatchParams::default(), from).await.expect("watches are answered").boxed();
    while let Some(event) = events.try_next().await.expect("the watch goes on") {
        if done(event) {
            return;
        }
    }
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
